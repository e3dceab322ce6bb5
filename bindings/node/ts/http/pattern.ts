/** Patterns of routes in one form, whatever the router: parameters as `{name}`, and those for several segments as `{*name}`. */

const NAME = /^(?:[\p{ID_Start}$_][\p{ID_Continue}$]*|"(?:[^"\\]|\\.)*")/u;

/**
 * A pattern of Express 4 or 5 or of @koa/router. What may be absent is written as if it were there, and a list of patterns is
 * joined. Groups without a name are `{*}`; a regular expression stays as it is.
 */
export function patternText(path: unknown): string {
  if (Array.isArray(path)) return path.map(patternText).join(",");
  if (typeof path !== "string") return path === undefined ? "" : String(path);
  let text = "";
  let rest = path;
  while (rest !== "") {
    const [first] = rest;
    const { piece, length } = pieceOf(first, rest);
    text += piece;
    rest = rest.slice(length);
  }
  return text;
}

function pieceOf(first: string, rest: string): { readonly piece: string; readonly length: number } {
  switch (first) {
    case "\\":
      return { piece: rest.slice(1, 2), length: 2 };
    case "{":
      return { piece: "", length: 1 };
    case "}":
      return { piece: "", length: 1 + modifierOf(rest, 1).length };
    case "(": {
      const end = groupEnd(rest, 0);
      return { piece: "{*}", length: end + modifierOf(rest, end).length };
    }
    case "*": {
      const name = NAME.exec(rest.slice(1))?.[0] ?? "";
      return { piece: `{*${unquoted(name)}}`, length: 1 + name.length };
    }
    case ":": {
      const name = NAME.exec(rest.slice(1))?.[0];
      if (name === undefined) break;
      const end = groupEnd(rest, 1 + name.length);
      const modifier = modifierOf(rest, end);
      const star = modifier === "*" || modifier === "+" ? "*" : "";
      return { piece: `{${star}${unquoted(name)}}`, length: end + modifier.length };
    }
  }
  return { piece: first, length: first.length };
}

function unquoted(name: string): string {
  return name.startsWith('"') ? name.slice(1, -1).replace(/\\(.)/g, "$1") : name;
}

/** What follows a parameter or a group and says how often it may be there. */
function modifierOf(rest: string, at: number): string {
  const modifier = rest[at] ?? "";
  return "?*+".includes(modifier) ? modifier : "";
}

/** The end of the group in parentheses that starts here; the same place if there is none. */
function groupEnd(text: string, start: number): number {
  if (text[start] !== "(") return start;
  let depth = 0;
  let isClass = false;
  for (let at = start; at < text.length; at++) {
    const one = text[at];
    if (one === "\\") at += 1;
    else if (one === "[") isClass = true;
    else if (one === "]") isClass = false;
    else if (one === "(" && !isClass) depth += 1;
    else if (one === ")" && !isClass && --depth === 0) return at + 1;
  }
  return text.length;
}

/** The pattern of which a router has made this expression; `names` are those of its groups, numbers for groups without one. */
export function patternOfExpression({ source }: RegExp, names: readonly (string | number)[]): string {
  const left = [...names];
  const read = (text: string): string => {
    let out = "";
    for (let at = 0; at < text.length; at++) {
      const one = text[at];
      if (one === "\\") out += text[++at] ?? "";
      else if (one === "(") {
        const end = groupEnd(text, at);
        const inner = text.slice(at + 1, end - 1);
        if (inner.startsWith("?:")) out += read(inner.slice(2));
        else if (!inner.startsWith("?")) {
          const name = left.shift();
          out += typeof name === "string" ? `{${name}}` : "{*}";
        }
        at = end - 1 + modifierOf(text, end).length;
      } else out += one;
    }
    return out;
  };
  return read(source.replace(/^\^/, "").replace(/(?:\\\/|\(\?:\\\/\))\?\(\?=\\\/\|\$\)$/, ""));
}
