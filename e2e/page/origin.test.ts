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

/** Script that replaces each script and page of x0x. */
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

/**
 * A foreign program whose answers a browser caches for a year. Each path returns or leads to its script, and a service worker answers in
 * its place.
 */
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

/** Visits the foreign program at each host name, and stops it. Returns its port. */
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

it('caches and service workers of another program on the same port can neither sign in nor see the code', async (t) => {
  const place = await deskPlace(t)
  const browser = await openPage(t)
  const { page } = browser
  const port = await visited(browser, ['127.0.0.1', 'localhost', 'x0x.localhost'])
  const ui = startUi(t, ['--data-dir', place.paths.dir, '--json', '--port', String(port)])
  const link = linkOf(await ui.next())
  // The foreign program is still cached at the addresses that it had.
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

it('the page at 127.0.0.1 makes the browser drop what another program had cached', async (t) => {
  const browser = await openPage(t)
  const port = await visited(browser, ['127.0.0.1'], FIRST_SCRIPT)
  const host = await pageHost(t, { files: (await buildPage()).files as PageFiles, port, loopbackIp: true })
  // A tab that has loaded the script keeps it in memory, whatever a server says. A link from a terminal opens a new tab.
  const page = await browser.page.context().newPage()
  await page.goto(host.server.newLink())
  await page.getByText(/^Connected to/).waitFor()
  assert.equal(await page.evaluate('globalThis.stolen'), undefined)
})
