// SPDX-License-Identifier: Apache-2.0

// The configuration of VitePress. .ci/site copies it next to a copy of the repository, whose Markdown it renders
// without changes. docs/README.md is the only list of pages: its table by reader becomes the navigation.
import {existsSync, readdirSync, readFileSync, statSync} from 'node:fs'
import {dirname, join, posix} from 'node:path'
import {fileURLToPath} from 'node:url'
import {defineConfig} from 'vitepress'

const root = join(dirname(fileURLToPath(import.meta.url)), '..')
const repository = 'https://github.com/torpor-dev/torpor'
const {SITE_BASE: base, SITE_VERSION: version, SITE_REF: ref, SITE_ROOT: siteRoot, SITE_VERSIONS: versions, SITE_STRICT: strict} = process.env
const excluded = ['.ci', '.github', 'charts', 'config', 'hack', 'internal', 'local', 'test']

const read = (path) => readFileSync(join(root, path), 'utf8')
const isPage = (path) => path.endsWith('.md') && !excluded.includes(path.split('/')[0])
const toIndex = (path) => path.replace(/(^|\/)README\.md$/, '$1index.md')
const toURL = (path) => '/' + toIndex(path).replace(/(^|\/)index\.md$/, '$1').replace(/\.md$/, '.html')
const findTitle = (path) => read(path).match(/^# (.+)$/m)[1].replaceAll('`', '')
const broken = (message) => { if (strict) throw new Error(message) }

// listLinks returns the pages that a part of docs/README.md links to.
const listLinks = (text) => [...text.matchAll(/\]\(([^)#]+)[^)]*\)/g)].map((match) => posix.join('docs', match[1]))
const listFolder = (folder) => readdirSync(join(root, folder)).filter((name) => name.endsWith('.md')).sort().map((name) => posix.join(folder, name))

// buildItem returns the menu entry of a page. The entry of a README contains the other pages of its folder.
function buildItem(path) {
  const item = {text: findTitle(path), link: toURL(path)}
  const folder = posix.dirname(path)
  if (path === 'README.md' || posix.basename(path) !== 'README.md') return item
  const pages = listFolder(folder).filter((page) => page !== path)
  return {...item, collapsed: true, items: pages.map(buildItem)}
}

function buildSidebar() {
  const [readers, kinds = ''] = read('docs/README.md').split('\n## ')
  const rows = [...readers.matchAll(/^\| (?!reader )([^|]+) \| (.+) \|$/gm)]
  const groups = rows.map(([, reader, cells]) => ({text: reader[0].toUpperCase() + reader.slice(1), pages: listLinks(cells)}))
  groups.push({text: 'Kinds', pages: listLinks(kinds)})
  groups.push({text: 'Generated reference', pages: ['docs/reference.md', 'docs/performance.md']})
  groups.push({text: 'Project', pages: ['docs/README.md', ...listFolder('.').filter((page) => page !== 'README.md')]})
  if (existsSync(join(root, 'docs/adr'))) groups.push({text: 'Decisions', pages: listFolder('docs/adr')})
  const sidebar = groups.map(({text, pages}, i) => ({text, collapsed: i > 0, items: pages.filter((page) => existsSync(join(root, page))).map(buildItem)}))
  const links = JSON.stringify(sidebar)
  for (const page of ['docs', 'docs/clouds', 'docs/spec', 'docs/tutorials'].flatMap(listFolder)) {
    if (!links.includes(JSON.stringify(toURL(page)))) broken(`${page}: expected a row of docs/README.md that links to it, found none`)
  }
  return sidebar.map((group) => group.text === 'Project' ? {...group, items: group.items.map(({text, link}) => ({text, link}))} : group)
}

// resolveLinks replaces relative links with addresses on the site. A file that is not a page becomes a link to the
// repository at the version of the site.
function resolveLinks(md) {
  md.core.ruler.push('torpor_links', ({tokens, env}) => {
    const file = posix.relative(root, env.realPath ?? env.path)
    const folder = posix.dirname(file)
    for (const token of tokens.flatMap((block) => block.children ?? [])) {
      const href = token.type === 'link_open' ? token.attrGet('href') : '#'
      if (/^(#|[a-z]+:)/.test(href)) continue
      const [, target, anchor] = href.match(/^([^#]*)(#.*)?$/)
      const path = posix.join(folder, decodeURI(target)).replace(/\/$/, '')
      if (!existsSync(join(root, path))) broken(`${file}: links to ${href}, which does not exist`)
      else if (isPage(path)) token.attrSet('href', toURL(path) + (anchor ?? ''))
      else token.attrSet('href', `${repository}/${statSync(join(root, path)).isDirectory() ? 'tree' : 'blob'}/${ref}/${path}${anchor ?? ''}`)
    }
  })
}

// renderPictures replaces blocks of Mermaid with diagrams, and the picture of a recording with its player.
function renderPictures(md) {
  const {fence, image} = md.renderer.rules
  md.renderer.rules.fence = (tokens, i, ...rest) => tokens[i].info.trim() === 'mermaid'
    ? `<Diagram text="${encodeURIComponent(tokens[i].content)}" />` : fence(tokens, i, ...rest)
  md.renderer.rules.image = (tokens, i, options, env, self) => {
    const picture = posix.join(posix.dirname(posix.relative(root, env.realPath ?? env.path)), tokens[i].attrGet('src'))
    const cast = picture.replace(/\.svg$/, '.cast')
    const html = image(tokens, i, options, env, self)
    return cast !== picture && existsSync(join(root, cast)) ? `<Recording cast="/${cast}">${html}</Recording>` : html
  }
}

// escapeText escapes tags and braces, which VitePress would otherwise interpret as a template. It drops comments.
function escapeText(md) {
  const escape = (text) => md.utils.escapeHtml(text).replaceAll('{{', '&#123;&#123;')
  md.renderer.rules.text = (tokens, i) => escape(tokens[i].content)
  md.renderer.rules.html_block = md.renderer.rules.html_inline = (tokens, i) => {
    const {content, meta} = tokens[i]
    return meta?.isPermalinkSymbol ? content : /^\s*<!--/.test(content) ? '' : escape(content)
  }
}

// checkAnchors fails if a link on the built site refers to a missing heading.
function checkAnchors({outDir}) {
  const pages = readdirSync(outDir, {recursive: true}).filter((name) => name.endsWith('.html'))
  const ids = new Map(pages.map((name) => {
    const html = readFileSync(join(outDir, name), 'utf8')
    return [base + name, {html, ids: new Set([...html.matchAll(/ id="([^"]+)"/g)].map((match) => match[1]))}]
  }))
  for (const [name, {html}] of ids) {
    for (const [, href] of html.matchAll(/<a [^>]*href="([^"]*#[^"]+)"/g)) {
      if (/^[a-z]+:/.test(href)) continue
      const url = new URL(href, 'http://site' + name)
      const target = url.pathname.endsWith('/') ? url.pathname + 'index.html' : url.pathname
      if (!ids.get(target)?.ids.has(decodeURIComponent(url.hash.slice(1)))) broken(`${name}: links to ${href}, which has no such heading`)
    }
  }
}

// icon is a power symbol.
const icon = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="none" stroke="#5672cd" stroke-width="2" stroke-linecap="round">' +
  '<path d="M8 2v6M4.5 4a6 6 0 1 0 7 0"/></svg>'

// toSlug returns the anchor that GitHub gives to a heading.
const toSlug = (text) => text.trim().toLowerCase().replace(/[^\p{L}\p{N}\p{M}_\- ]/gu, '').replaceAll(' ', '-')

// listVersions returns the menu of versions. VitePress prepends its base to each link, and browsers resolve the result.
function listVersions() {
  const toRoot = base === siteRoot ? '/' : '/../'
  const others = versions.split(' ').filter((other) => other && other !== version)
  return [{text: `${version} (shown)`, link: '/'},
    ...others.map((other) => ({text: other, link: toRoot + (other === 'main' ? '' : other + '/'), target: '_self', noIcon: true}))]
}

export default defineConfig({
  title: 'Torpor',
  description: 'The off switch for Kubernetes',
  base,
  head: [['link', {rel: 'icon', href: 'data:image/svg+xml,' + encodeURIComponent(icon)}]],
  srcExclude: excluded.map((folder) => folder + '/**'),
  rewrites: toIndex,
  markdown: {
    anchor: {slugify: toSlug},
    languageAlias: {console: 'shellsession', txtar: 'text'},
    config: (md) => { resolveLinks(md); renderPictures(md); escapeText(md) },
  },
  themeConfig: {
    sidebar: buildSidebar(),
    outline: [2, 3],
    search: {provider: 'local', options: {miniSearch: {searchOptions: {boostDocument: (id) => id.includes('/adr/') ? 0.3 : 1}}}},
    socialLinks: [{icon: 'github', link: repository}],
    editLink: {pattern: `${repository}/edit/main/:path`, text: 'Edit this page'},
    nav: [
      {text: 'Tutorials', link: toURL('docs/tutorials/README.md')},
      {text: 'Install', link: toURL('docs/install.md')},
      {text: 'Reference', link: toURL('docs/reference.md')},
      {text: version, items: listVersions()},
    ],
  },
  buildEnd: checkAnchors,
})
