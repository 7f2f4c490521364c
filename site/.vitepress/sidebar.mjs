// The sidebar: the sections of ../sections.json with all pages of docs/, each under its title. "folder/*" stands for the pages of a folder
// that no section names, so that a new page appears by itself. Names of pages that are not there are passed over.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const sections = JSON.parse(readFileSync(new URL('../sections.json', import.meta.url)))

export function sidebar(docs) {
  const all = readdirSync(docs, { recursive: true }).filter((file) => file.endsWith('.md')).map((file) => file.slice(0, -3)).sort()
  const left = new Set(all.filter((page) => page !== 'README' && page !== 'index'))
  const named = new Set(sections.flatMap((section) => section.pages))
  const take = (name) => {
    const folder = name.endsWith('/*') && name.slice(0, -1)
    const pages = folder ? all.filter((page) => page.startsWith(folder) && !named.has(page)) : [name]
    return pages.filter((page) => left.delete(page))
  }
  const result = sections.map(({ pages, ...section }) => ({
    ...section,
    items: pages.flatMap(take).map((page) => ({ text: title(join(docs, page + '.md')), link: '/' + page.replace(/README$/, '') })),
  }))
  if (left.size > 0) {
    throw new Error(`no section of site/sections.json has these pages: ${[...left].join(', ')}`)
  }
  return result.filter((section) => section.items.length > 0)
}

// title is that of the front matter, or the first heading.
function title(file) {
  const text = readFileSync(file, 'utf8')
  const found = /^---\n[^]*?^title: *(.+)$[^]*?^---$/m.exec(text.startsWith('---\n') ? text : '') ?? /^# +(.+)$/m.exec(text)
  if (!found) {
    throw new Error(`${file} has no title`)
  }
  return found[1].replaceAll('`', '')
}
