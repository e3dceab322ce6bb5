// All tabs of the site show the same language: the one that the reader chose last.
(() => {
  const remembered = "polylimit-language";
  const buttons = [...document.querySelectorAll(".tabs > input")];

  const show = (language) => {
    for (const button of buttons) if (button.value === language) button.checked = true;
  };

  try {
    show(localStorage.getItem(remembered));
  } catch {
    // Without storage each page starts with its first tab.
  }

  for (const button of buttons) {
    button.addEventListener("change", () => {
      // The tabs above this one may grow or shrink: the reader keeps looking at the same place.
      const before = button.labels[0].getBoundingClientRect().top;
      show(button.value);
      scrollBy({ top: button.labels[0].getBoundingClientRect().top - before, behavior: "instant" });
      try {
        localStorage.setItem(remembered, button.value);
      } catch {
        // The choice holds for this page.
      }
    });
    // The arrow keys choose a tab; elsewhere they turn the pages of the book.
    button.addEventListener("keydown", (event) => event.stopPropagation());
  }
})();
