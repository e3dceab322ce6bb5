decide = decide or (function()
  @general
end)()
