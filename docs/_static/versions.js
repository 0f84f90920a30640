// Fills the menu of versions from versions.json, which lies beside the folders of the versions. Without it, as in a site
// that is built alone or opened as a file, the menu stays hidden.
(async () => {
  const menu = document.getElementById("versions");
  if (menu === null || !location.protocol.startsWith("http")) return;
  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const place = new URL("..", root);
  const answer = await fetch(new URL("versions.json", place)).catch(() => null);
  if (answer === null || !answer.ok) return;
  const here = root.pathname.split("/").filter(Boolean).pop();
  const page = location.href.slice(root.href.length);
  for (const { name, title } of await answer.json()) menu.add(new Option(title, name, false, name === here));
  menu.addEventListener("change", async () => {
    // A page that the other version does not have leads to its first one.
    const wanted = new URL(`${menu.value}/${page}`, place);
    const there = await fetch(wanted, { method: "HEAD" }).catch(() => null);
    location.href = there !== null && there.ok ? wanted : new URL(`${menu.value}/`, place);
  });
  menu.closest("label").hidden = false;
})();
