"use strict";
(() => {
  const form = document.querySelector("form");
  const items = [...document.querySelectorAll(".item")];
  const groups = [...document.querySelectorAll(".group")];
  const fields = [...form.querySelectorAll("input, select")];
  const [words, ...selects] = fields;
  const said = document.getElementById("said");
  const reset = form.querySelector("[type=reset]");
  const list = document.querySelector(".groups");
  const badges = new Map(items.map(item => [item, list.querySelector(`[data-image="${item.firstElementChild.id}"]`)]));
  const nothing = document.querySelector(".nothing");
  const add = nothing.querySelector(".add");
  const plain = text => text.replace(/\s+/g, " ").trim();
  const lower = text => plain(text).toLowerCase();

  const models = new Map([...document.querySelectorAll("tr[data-models]")] // and generations, by capability
    .map(({ dataset }) => [dataset.gpu, dataset.models.split(", ")]));
  // The tags, pins, GPU models, packages and driver of each image, in the order of their ranks; read at the first search.
  const lines = new Map();
  const names = new Set(); // of pins and packages
  const read = () => {
    for (const item of items) {
      const texts = selector => [...item.querySelectorAll(selector)].map(one => plain(one.textContent));
      const versions = texts(".pins tbody td.number"), packages = texts(".packages li");
      const pins = texts(".pins tbody th").map((name, index) => `${name} ${versions[index]}`);
      const gpus = [...new Set(item.dataset.gpu.split("|").flatMap(one => models.get(one) ?? []))];
      const drivers = item.dataset.driver ? [`NVIDIA driver ≥ ${item.dataset.driver}`] : [];
      lines.set(item, [texts("h4, [data-find] code"), pins, gpus, packages, drivers]);
      for (const line of [...pins, ...packages]) names.add(lower(line.split(" ")[0]));
    }
  };

  // Decide as `imgbuild list --driver` does: only the numbers that the driver has are compared, so 450.80 is enough
  // for 450.80.02.
  const supportsDriver = (line, driver) => {
    const needed = line.match(/\d+/g).map(Number), installed = driver.split(".").map(Number);
    const index = needed.findIndex((number, place) => number !== installed[place]);
    return index < 0 || index >= installed.length || installed[index] > needed[index];
  };

  // A word is searched at the start of words, and 2.1 is not 2.10; if `loose`, anywhere. A version alone is of
  // no package: it follows the package's name.
  const termsOf = loose => {
    const terms = [];
    for (const word of lower(words.value).split(/\s|[=<>~]=|,/).filter(Boolean)) {
      const quoted = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
      const part = quoted + (loose || !/\d$/.test(word) ? "" : "(?!\\d)");
      const number = /^\d/.test(word), last = terms.at(-1);
      if (number && names.has(last?.word)) {
        terms.splice(-1, 1, { kinds: [1, 3], pattern: RegExp(`^${last.quoted} (.* )?${part}`, "i") });
      } else if (last?.word === "driver" && /^\d+(\.\d+)*$/.test(word)) {
        terms.splice(-1, 1, { kinds: [4], pattern: { test: line => supportsDriver(line, word) } });
      } else {
        const start = loose && !number ? "" : "(?<![a-z0-9.])";
        terms.push({ word, quoted, kinds: number ? [0, 1, 2] : [0, 1, 2, 3, 4], pattern: RegExp(start + part, "i") });
      }
    }
    return terms;
  };
  const kindOf = (item, { kinds, pattern }) =>
    kinds.find(kind => lines.get(item)[kind].some(line => pattern.test(line))) ?? NaN;
  const rankOf = (item, terms) => terms.reduce((sum, term) => sum + kindOf(item, term), 0); // NaN: does not match
  const fits = item => selects.every(({ name, value }) => !value || item.dataset[name].split("|").includes(value));

  // The pins, GPUs and packages of an image with most words of the search.
  const hitsOf = (item, terms) => {
    const all = terms.flatMap(term => (lines.get(item)[kindOf(item, term) || -1] ?? []).filter(line => term.pattern.test(line)));
    const count = line => all.filter(one => one === line).length;
    const most = Math.max(...all.map(count));
    return all.filter(line => count(line) === most);
  };
  // Show a row if one of its images is shown, with their hits, so that nobody has to open an image to see them.
  const showRow = (group, terms) => {
    const shown = [...group.querySelectorAll(".item:not([hidden])")];
    const hits = [...new Set(shown.flatMap(item => hitsOf(item, terms)))];
    const place = group.querySelector(".hits");
    place.textContent = hits.slice(0, 3).join(", ") + (hits.length > 3 ? ` and ${hits.length - 3} more` : "");
    place.hidden = !hits.length;
    group.hidden = !shown.length;
  };

  const labels = [...document.querySelectorAll("header, form, .head, thead, h5")].map(one => lower(one.textContent));
  const known = new Set(labels.join(" ").split(/[^\w-]+/)); // words of the page that are no packages
  const isPackage = word => /^[a-z]([\w.-]*[a-z0-9])?$/.test(word) && !known.has(word);

  const newer = (one, other) => other.dataset.tensorflow.localeCompare(one.dataset.tensorflow, "en", { numeric: true });
  const bases = [items[0], ...[...items].sort(newer)]; // the default first

  // How to add the one package that no image has. A link may hold any words: a command only takes names and versions.
  const advise = terms => {
    const gpus = [...models.values()].flat();
    const isMissing = term => term.word && !/^\d/.test(term.word) && !items.some(item => kindOf(item, term) >= 0);
    const [missing, second] = terms.filter(isMissing);
    const offered = missing && !second && isPackage(missing.word) && !gpus.some(one => missing.pattern.test(one));
    add.hidden = !offered;
    if (!offered) return;
    const next = terms[terms.indexOf(missing) + 1];
    const [version] = next?.word?.match(/^\d[\w.]*$/) ?? [];
    const others = terms.filter(term => term !== missing && !(version && term === next));
    const base = bases.find(item => fits(item) && rankOf(item, others) >= 0) ?? items[0];
    const requirement = missing.word + (version ? `==${version}` : "");
    add.querySelector("strong").textContent = missing.word;
    add.querySelector("code").textContent =
      `imgbuild extend ${base.querySelector("details").id} --pip ${requirement} -t me/train:1`;
  };

  const filter = () => {
    if (words.value && !lines.size) read();
    let terms = termsOf();
    if (!items.some(item => rankOf(item, terms) >= 0)) terms = termsOf(true);
    const ranks = new Map();
    for (const item of items) {
      const rank = fits(item) ? rankOf(item, terms) : NaN;
      item.hidden = badges.get(item).hidden = !(rank >= 0);
      if (!item.hidden) ranks.set(item, rank);
    }
    const ranked = [...items].sort((one, other) => (ranks.get(one) ?? 99) - (ranks.get(other) ?? 99));
    for (const item of ranked) item.parentElement.append(item);
    groups[0].parentElement.append(...new Set(ranked.map(item => item.closest(".group"))));
    for (const group of groups) showRow(group, terms);
    const [only, another] = groups.filter(group => !group.hidden);
    if (only && !another) only.querySelector("details").open = true;
    list.hidden = !only;
    nothing.hidden = ranks.size > 0;
    advise(terms);
    const chosen = new URLSearchParams([...new FormData(form)].filter(([, value]) => value.trim()));
    form.elements.count.value = `${chosen.size ? `${ranks.size} of ` : ""}${items.length} images`;
    reset.hidden = !chosen.size;
    // The address keeps the filters, so that a link shows the same images.
    const hash = chosen.size ? `#?${chosen}` : "";
    if (hash || location.hash.startsWith("#?")) {
      history.replaceState(null, "", hash || location.pathname + location.search);
    }
  };
  const fill = chosen => {
    for (const one of fields) one.value = chosen?.get(one.name) ?? "";
    filter();
  };
  const follow = () => {
    if (location.hash.startsWith("#?")) return fill(new URLSearchParams(location.hash.slice(2)));
    const target = document.getElementById(location.hash.slice(1));
    if (target?.matches(".item > details, .group > details")) {
      if (target.closest("[hidden]")) fill();
      target.open = target.closest(".group").firstElementChild.open = true;
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

  form.hidden = false;
  for (const button of document.querySelectorAll(".copy")) button.hidden = false;
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(() => { filter(); words.focus(); }));
  form.addEventListener("submit", event => event.preventDefault());
  document.addEventListener("click", event => {
    const button = event.target.closest(".copy");
    if (button) copy(button);
  });
  addEventListener("hashchange", follow);
  follow();
})();
