// What the pages of docs/ have beside ordinary Markdown.
import { existsSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'

// fileLinks makes links between files links between pages, and links to files that are no pages links into the repository.
export function fileLinks(md, { root, docs, repository }) {
  md.core.ruler.push('file-links', ({ tokens, env }) => {
    for (const { children } of tokens) {
      const open = []
      for (const token of children ?? []) {
        if (token.type === 'link_open') {
          follow(token, env.realPath ?? env.path)
          open.push(token)
        } else if (token.type === 'link_close') {
          const { type, tag } = open.pop()
          Object.assign(token, { type: type.replace('open', 'close'), tag })
        }
      }
    }
  })

  function follow(token, page) {
    const [, path, rest] = /^([^?#]*)(.*)$/.exec(token.attrGet('href'))
    if (path === '' || path.startsWith('/') || /^[a-z]+:/i.test(path)) {
      return
    }
    let file = resolve(dirname(page), decodeURI(path))
    if (!existsSync(file)) {
      return // the build fails because of it
    }
    if (statSync(file).isDirectory() && existsSync(join(file, 'README.md'))) {
      file = join(file, 'README.md')
    }
    if (!relative(docs, file).startsWith('..') && file.endsWith('.md')) {
      const to = relative(dirname(page), file).replace(/README\.md$/, '')
      token.attrSet('href', './' + to + rest)
    } else if (repository) {
      token.attrSet('href', repository + relative(root, file) + rest)
    } else {
      Object.assign(token, { type: 'span_open', tag: 'span', attrs: [['title', `${relative(root, file)} in the repository`]] })
    }
  }
}

// fenceLabels tells the reader what the words behind a fence tell the one who plays the page: see test/docs.
export function fenceLabels(md) {
  const fence = md.renderer.rules.fence
  md.renderer.rules.fence = (tokens, index, options, env, self) => {
    const { info, content } = tokens[index]
    if (/^mermaid\b/.test(info)) {
      return `<Mermaid code="${encodeURIComponent(content)}" />`
    }
    const label = [
      [/ file=(\S+)/, 'file $1'],
      [/ patch=(\S+)/, 'a part of $1'],
      [/ fails\b/, 'this fails'],
    ].flatMap(([word, text]) => info.match(word)?.[0].replace(word, text) ?? [])
    const block = fence(tokens, index, options, env, self)
    return label.length ? `<div class="fence-label">${md.utils.escapeHtml(label.join(', '))}</div>${block}` : block
  }
}

// plainText makes text of what Vue would take for its own: {{ }}, and placeholders in angle brackets that are no elements of HTML.
export function plainText(md) {
  const element = /^<(\/?(a|br|details|summary|sub|sup|kbd|img|p|div|span|table|thead|tbody|tr|th|td)\b|!--)/i
  const braces = (text) => text.replaceAll('{{', '&#123;&#123;')
  const { text, html_inline, html_block } = md.renderer.rules
  md.renderer.rules.text = (...args) => braces(text(...args))
  for (const [name, rule] of Object.entries({ html_inline, html_block })) {
    md.renderer.rules[name] = (tokens, index, ...rest) =>
      element.test(tokens[index].content) ? rule(tokens, index, ...rest) : braces(md.utils.escapeHtml(tokens[index].content))
  }
}
