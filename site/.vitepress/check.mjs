// checkSite fails the build if a link of a built page leads nowhere, anchors included, or if a page asks another host for anything.
import { readdirSync, readFileSync } from 'node:fs'
import { join, posix } from 'node:path'

export function checkSite(folder, base) {
  const pages = new Map()
  for (const name of readdirSync(folder, { recursive: true }).filter((file) => file.endsWith('.html'))) {
    const html = readFileSync(join(folder, name), 'utf8')
    pages.set(base + name, { html, ids: new Set([...html.matchAll(/\sid="([^"]*)"/g)].map((found) => found[1])) })
  }
  const wrong = []
  for (const [name, { html }] of pages) {
    for (const [tag] of html.matchAll(/<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="(?:https?:)?\/\/[^>]*>/g)) {
      wrong.push(`${name} asks another host: ${tag}`)
    }
    for (const [, href] of html.matchAll(/<a\b[^>]*\bhref="([^"]*)"/g)) {
      if (/^[a-z]+:/i.test(href)) {
        continue
      }
      const [path, hash] = href.split('#')
      let to = path === '' ? name : posix.resolve(posix.dirname(name), path) + (path.endsWith('/') ? '/index.html' : '')
      to = to.replace('//', '/')
      const page = pages.get(to) ?? pages.get(to + '.html')
      if (!page || (hash && !page.ids.has(decodeURIComponent(hash)))) {
        wrong.push(`${name} links to ${href}, which does not exist`)
      }
    }
  }
  if (wrong.length > 0) {
    throw new Error(wrong.join('\n'))
  }
}
