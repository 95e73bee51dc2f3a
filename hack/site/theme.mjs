// SPDX-License-Identifier: Apache-2.0

// The default theme of VitePress, with diagrams and recordings. Everything that it loads is part of the site.
import mermaidURL from '@mermaid-js/tiny/dist/mermaid.tiny.js?url'
import 'asciinema-player/dist/bundle/asciinema-player.css'
import {useData, withBase} from 'vitepress'
import DefaultTheme from 'vitepress/theme'
import {defineComponent, h, onBeforeUnmount, onMounted, ref, watch} from 'vue'

// loadMermaid loads the script once. The script is not a module: it defines a global variable.
let loading
const loadMermaid = () => loading ??= new Promise((resolve, reject) => {
  const script = document.createElement('script')
  Object.assign(script, {src: mermaidURL, onload: () => resolve(globalThis.mermaid), onerror: reject})
  document.head.append(script)
})

// Diagram draws a Mermaid diagram. Until then it shows the text.
const Diagram = defineComponent({
  props: {text: String},
  setup(props) {
    const {isDark} = useData()
    const source = decodeURIComponent(props.text)
    const svg = ref('')
    const draw = async () => {
      const mermaid = await loadMermaid()
      mermaid.initialize({startOnLoad: false, theme: isDark.value ? 'dark' : 'default'})
      svg.value = (await mermaid.render(`diagram-${Math.random().toString(36).slice(2)}`, source)).svg
    }
    onMounted(draw)
    watch(isDark, draw)
    return () => svg.value ? h('div', {class: 'diagram', innerHTML: svg.value}) : h('pre', {style: 'overflow-x: auto'}, source)
  },
})

// Recording replaces the picture of a terminal recording with its player.
const Recording = defineComponent({
  props: {cast: String},
  setup(props, {slots}) {
    const place = ref()
    const isPlaying = ref(false)
    let player
    onMounted(async () => {
      const {create} = await import('asciinema-player')
      isPlaying.value = true
      player = create(withBase(props.cast), place.value, {fit: 'width', poster: 'npt:8', idleTimeLimit: 2})
    })
    onBeforeUnmount(() => player?.dispose())
    return () => h('span', [isPlaying.value ? null : slots.default?.(), h('span', {ref: place, style: 'display: block'})])
  },
})

export default {
  extends: DefaultTheme,
  enhanceApp({app}) {
    app.component('Diagram', Diagram)
    app.component('Recording', Recording)
  },
}
