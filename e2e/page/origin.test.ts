import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import { type AddressInfo } from 'node:net'
import { test, type TestContext } from 'node:test'

import { buildPage } from '../../deploy/build-page.mjs'
import type { PageFiles } from '../../src/doors/page/services.ts'
import { PAGE_FILES } from '../../src/doors/page/services.ts'
import { deskPlace } from '../../test/support/desk-place.ts'
import { pageHost } from '../../test/support/page-host.ts'
import { linkOf, startUi } from '../../test/support/ui-program.ts'
import { openPage, skipsBrowser, WITHOUT_BROWSER, type BrowserPage } from './browser.ts'

const it = (title: string, body: (t: TestContext) => Promise<void>): void =>
  void test(`${title}${WITHOUT_BROWSER}`, { skip: skipsBrowser }, body)

const PATHS = [...Object.keys(PAGE_FILES), '/api/follow']

/** Takes the place of each script and page. */
const STEAL = `document.title = 'stolen'; globalThis.stolen = location.hash`

const WORKER = `addEventListener('install', () => skipWaiting())
addEventListener('activate', (event) => event.waitUntil(clients.claim()))
addEventListener('fetch', (event) => event.respondWith(new Response(${JSON.stringify(`<script>${STEAL}</script>`)}, { headers: { 'content-type': 'text/html' } })))`

const FIRST = `<!doctype html><script>
const paths = ${JSON.stringify(PATHS)}
const worker = async () => { await navigator.serviceWorker.register('/worker.js'); await navigator.serviceWorker.ready }
const all = [...paths.map((path) => fetch(path).catch(() => null)), worker()]
Promise.all(all).then(() => { document.title = 'ready' }, (error) => { document.title = String(error) })
</script>`
const FIRST_SCRIPT = `<!doctype html><script type="module" src="/sign-in.js"></script>`

/** A foreign program that the browser keeps a year of: every path is its script, or leads to one, and a worker answers in its place. */
const hostile =
  (first: string): RequestListener =>
  (request, response) => {
    const kept = { 'cache-control': 'public, max-age=31536000, immutable' }
    if (request.url === '/first') response.writeHead(200, { 'content-type': 'text/html' }).end(first)
    else if (request.url === '/worker.js') response.writeHead(200, { 'content-type': 'text/javascript' }).end(WORKER)
    else if (request.url === '/') response.writeHead(301, { ...kept, location: '/sign-in' }).end()
    else if (request.url?.endsWith('.js') === true) response.writeHead(200, { ...kept, 'content-type': 'text/javascript' }).end(STEAL)
    else response.writeHead(200, { ...kept, 'content-type': 'text/html' }).end(`<script>${STEAL}</script>`)
  }

/** The browser visits the foreign program at each host name; then the program is gone. Answers the port that it had. */
const visited = async ({ page }: BrowserPage, names: readonly string[], first = FIRST): Promise<number> => {
  const server = createServer(hostile(first)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  for (const name of names) {
    await page.goto(`http://${name}:${port}/first`)
    await page.waitForFunction('document.title !== ""')
    assert.equal(await page.title(), first === FIRST ? 'ready' : 'stolen', name)
  }
  await page.goto('about:blank')
  server.closeAllConnections()
  server.close()
  await once(server, 'close')
  return port
}

it('what another program left in the browser for the same port neither signs in nor sees the code', async (t) => {
  const place = await deskPlace(t)
  const browser = await openPage(t)
  const { page } = browser
  const port = await visited(browser, ['127.0.0.1', 'localhost', 'x0x.localhost'])
  const ui = startUi(t, ['--data-dir', place.paths.dir, '--json', '--port', String(port)])
  const link = linkOf(await ui.next())
  // The foreign program is still there for the addresses that it had.
  await page.goto(`http://127.0.0.1:${port}/sign-in`)
  assert.equal(await page.title(), 'stolen')
  await page.goto(link.url)
  await page.getByText(/^Connected to/).waitFor()
  assert.equal(page.url(), `${link.origin}/`)
  assert.equal(await page.evaluate('globalThis.stolen'), undefined)
  assert.equal(await page.evaluate('navigator.serviceWorker.getRegistrations().then((all) => all.length)'), 0)
  await page.reload()
  await page.getByText(/^Connected to/).waitFor()
})

it('the page at 127.0.0.1 has the browser forget what another program had cached there', async (t) => {
  const browser = await openPage(t)
  const port = await visited(browser, ['127.0.0.1'], FIRST_SCRIPT)
  const host = await pageHost(t, { files: (await buildPage()).files as PageFiles, port, loopbackIp: true })
  // A tab that had the script keeps it in memory, whatever a server says; a link from a terminal opens another.
  const page = await browser.page.context().newPage()
  await page.goto(host.server.newLink())
  await page.getByText(/^Connected to/).waitFor()
  assert.equal(await page.evaluate('globalThis.stolen'), undefined)
})
