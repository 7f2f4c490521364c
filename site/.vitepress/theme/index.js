import { h } from 'vue'
import Theme from 'vitepress/theme-without-fonts'
import Home from './Home.vue'
import Mermaid from './Mermaid.vue'
import './style.css'

export default {
  extends: Theme,
  Layout: () => h(Theme.Layout, null, { 'home-hero-before': () => h(Home) }),
  enhanceApp: ({ app }) => app.component('Mermaid', Mermaid),
}
