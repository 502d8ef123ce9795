"use strict";
(() => {
  const form = document.querySelector("form");
  const items = [...document.querySelectorAll(".item")];
  const groups = [...document.querySelectorAll(".group")];
  const selects = [...form.querySelectorAll("select")];
  const words = form.elements.words;
  const said = document.getElementById("said");
  const reset = form.querySelector("[type=reset]");
  const known = new Map(); // what is searched in an image; read from the page at the first search
  const lower = text => text.toLowerCase().replace(/\s+/g, " ").trim();

  const textOf = item => {
    if (!known.has(item)) {
      const parts = [...item.querySelectorAll("[data-find]")];
      const packages = [...item.querySelectorAll(".packages li")].map(one => lower(one.textContent));
      known.set(item, { packages, all: lower(parts.map(one => one.textContent).join(" ")) });
    }
    return known.get(item);
  };
  const fits = item => selects.every(({ name, value }) =>
    !value || item.dataset[name].split("|").includes(value));

  // The packages that a search is about, so that nobody has to open the image to see why it fits.
  const showHits = (item, wanted) => {
    const place = item.querySelector(".hits");
    const hits = wanted.length ? textOf(item).packages.filter(one => wanted.every(word => one.includes(word))) : [];
    place.textContent = hits.slice(0, 3).join(", ") + (hits.length > 3 ? ` and ${hits.length - 3} more` : "");
    place.hidden = !hits.length;
  };

  const filter = () => {
    const wanted = lower(words.value).split(" ").filter(Boolean);
    let count = 0;
    for (const item of items) {
      const shown = fits(item) && wanted.every(word => textOf(item).all.includes(word));
      item.hidden = !shown;
      count += shown;
      showHits(item, shown ? wanted : []);
    }
    for (const group of groups) group.hidden = !group.querySelector(".item:not([hidden])");
    const filtered = wanted.length > 0 || selects.some(one => one.value);
    form.elements.count.value =
      filtered ? `${count} of ${items.length} images` : `${items.length} images`;
    reset.hidden = !filtered;
    document.querySelector(".nothing").hidden = count > 0;
    remember();
  };

  // The address keeps the filters, so that a link shows the same images.
  const remember = () => {
    const chosen = new URLSearchParams();
    for (const { name, value } of [words, ...selects]) if (value.trim()) chosen.set(name, value);
    const hash = chosen.size ? `#?${chosen}` : "";
    if (hash || location.hash.startsWith("#?")) {
      history.replaceState(null, "", hash || location.pathname + location.search);
    }
  };
  const follow = () => {
    if (location.hash.startsWith("#?")) {
      const chosen = new URLSearchParams(location.hash.slice(2));
      for (const one of [words, ...selects]) one.value = chosen.get(one.name) ?? "";
      filter();
      return;
    }
    const target = document.getElementById(location.hash.slice(1));
    if (target?.matches(".item > details")) {
      if (target.closest("[hidden]")) form.reset();
      target.open = true;
      target.scrollIntoView();
      target.querySelector("summary").focus({ preventScroll: true });
    }
  };

  const copy = async button => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
      said.textContent = `Copied: ${code.textContent}`;
      button.firstChild.data = "Copied";
      setTimeout(() => { button.firstChild.data = "Copy"; }, 2000);
    } catch { // no clipboard for a page from there: the text is selected for Ctrl+C
      getSelection().selectAllChildren(code);
      said.textContent = "Selected. Copy it with Ctrl+C.";
    }
  };

  const addPackageSearch = list => {
    const input = document.createElement("input");
    const image = list.closest(".item > details").id;
    Object.assign(input, { type: "search", placeholder: "Search these packages", autocomplete: "off" });
    input.setAttribute("aria-label", `Search the packages of ${image}`);
    input.addEventListener("input", () => {
      const wanted = lower(input.value);
      for (const one of list.querySelectorAll("li")) one.hidden = !lower(one.textContent).includes(wanted);
    });
    list.querySelector("summary").after(input);
  };

  form.hidden = false;
  for (const button of document.querySelectorAll(".copy")) button.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(() => { filter(); words.focus(); }));
  form.addEventListener("submit", event => event.preventDefault());
  document.addEventListener("click", event => {
    const button = event.target.closest(".copy");
    if (button) copy(button);
  });
  document.addEventListener("toggle", event => {
    const list = event.target;
    if (list.matches(".packages[open]") && !list.querySelector("input")) addPackageSearch(list);
  }, true);
  addEventListener("hashchange", follow);
  follow();
})();
