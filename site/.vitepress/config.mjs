// The site renders the pages of docs/ as they are: nothing is written for it alone but the home page's head (theme/Home.vue) and the order
// of the sidebar (../sections.json). It asks no other host for anything.
import { fileURLToPath } from 'node:url'
import { slug } from 'github-slugger'
import { defineConfig } from 'vitepress'
import { checkSite } from './check.mjs'
import { fenceLabels, fileLinks, plainText } from './markdown.mjs'
import { sidebar } from './sidebar.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const docs = root + 'docs'
// Where files of the repository can be read, such as https://example.com/afloat/blob/main/. Without it links to them become text.
const repository = process.env.SITE_REPOSITORY ?? ''
const wave = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><path d="M2 20q7-8 14 0t14 0" fill="none" stroke="#0e7490" stroke-width="4"/></svg>'

export default defineConfig({
  title: 'Afloat',
  description: 'Workloads for Kubernetes whose running pods are updated in place',
  base: process.env.SITE_BASE ?? '/',
  srcDir: docs,
  outDir: root + 'bin/site',
  cacheDir: root + 'bin/site-cache',
  rewrites: { 'README.md': 'index.md', ':folder/README.md': ':folder/index.md' },
  head: [['link', { rel: 'icon', href: 'data:image/svg+xml,' + encodeURIComponent(wave) }]],
  markdown: {
    // The anchors of headings are those that readers of the repository see.
    anchor: { slugify: slug },
    config(md) {
      md.use(fileLinks, { root, docs, repository })
      md.use(fenceLabels)
      md.use(plainText)
    },
  },
  themeConfig: {
    nav: [
      { text: 'Install', link: '/operate/install' },
      { text: 'Reference', link: '/reference/' },
    ],
    sidebar: sidebar(docs),
    outline: [2, 3],
    search: {
      provider: 'local',
      options: {
        // Who searches wants to do something: what decisions, measurements and the specification say comes after the manual.
        miniSearch: { searchOptions: { boostDocument: (id) => (/\/(kinds|tasks|operate|reference)\//.test(id) ? 10 : 1) } },
      },
    },
  },
  transformPageData(page) {
    if (page.relativePath === 'index.md') {
      page.frontmatter.layout = 'home'
    }
  },
  vite: {
    // Pages lie outside of the folder where packages are, and import vue.
    plugins: [
      {
        name: 'packages-of-the-site',
        resolveId(id, from, options) {
          return from?.startsWith(docs) && /^vue\b/.test(id) ? this.resolve(id, root + 'site/package.json', { ...options, skipSelf: true }) : null
        },
      },
    ],
    // The index of the search is large, and loaded when somebody searches.
    build: { chunkSizeWarningLimit: 3000 },
  },
  buildEnd: (site) => checkSite(site.outDir, site.site.base),
})
