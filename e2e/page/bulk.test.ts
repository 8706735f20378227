import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { Page } from 'playwright-core'

import { buildPage } from '../../deploy/build-page.mjs'
import { AppError } from '../../src/base/errors.ts'
import type { PageFiles } from '../../src/doors/page/services.ts'
import { contactsOf } from '../../src/programs/ui/contact-list.ts'
import type { PageContactChange } from '../../src/protocol/page.ts'
import type { PageContact } from '../../src/protocol/page-lists.ts'
import { askPage, pageHeaders, pageHost, signInTo, type PageHost } from '../../test/support/page-host.ts'
import { until } from '../../test/support/processes.ts'
import { openPage, screenshots, seriousFaults, skipsBrowser, WITHOUT_BROWSER, type BrowserPage } from './browser.ts'

const it = (title: string, body: (t: TestContext) => Promise<void>): void =>
  void test(`${title}${WITHOUT_BROWSER}`, { skip: skipsBrowser }, body)

const contactAt = (at: number, name = `web${String(at).padStart(3, '0')}`): PageContact => ({
  name,
  agent_id: at.toString(16).padStart(64, '0'),
  trust: at % 2 === 0 ? 'known' : 'trusted',
  machines: at % 3 === 0 ? ['c'.repeat(64)] : [],
  labels: at % 2 === 0 ? { role: 'db' } : {},
  revoked: false,
  revoked_machines: [],
})

interface Contacts {
  /** Contacts of the daemon by name, which a test can change. */
  readonly contacts: Map<string, PageContact>
  readonly changes: PageContactChange[]
  /** Resolves before each change. A test can delay it. */
  gate: Promise<void>
}

/** Contacts that a page changes, with the lists that the server of the page makes. */
const contactsHost = async (t: TestContext, all: readonly PageContact[]): Promise<Contacts & PageHost & BrowserPage> => {
  const shared: Contacts = { contacts: new Map(all.map((contact) => [contact.name, contact])), changes: [], gate: Promise.resolve() }
  const lists = {
    contacts: { get: async () => ({ contacts: [...shared.contacts.values()] }) },
    peers: { get: async () => ({ peers: [] }) },
  } as unknown as Parameters<typeof contactsOf>[0]['lists']
  const change = async (one: PageContactChange): Promise<object> => {
    await shared.gate
    const contact = shared.contacts.get(one.contact)
    if (contact === undefined) throw new AppError('unknown_agent', `no contact ${JSON.stringify(one.contact)}`)
    shared.changes.push(one)
    if (one.kind === 'trust') shared.contacts.set(one.contact, { ...contact, trust: one.level })
    return {}
  }
  const sources = {
    contacts: async (query: Parameters<typeof contactsOf>[1]) => contactsOf({ lists } as never, query),
    changeContact: change,
  }
  const host = await pageHost(t, { files: (await buildPage()).files as PageFiles, sources })
  const browser = await openPage(t)
  await browser.page.goto(host.server.newLink())
  await browser.page.getByText(/^Connected to x0xd of bob/).waitFor()
  await browser.page.evaluate("location.hash = '#/trust'")
  await browser.page.getByRole('table', { name: 'Contacts' }).waitFor()
  return Object.assign(shared, host, browser)
}

const many = (count: number): readonly PageContact[] => Array.from({ length: count }, (_, at) => contactAt(at))

const openDialog = async (page: Page, count: string): Promise<ReturnType<Page['getByRole']>> => {
  await page.getByRole('button', { name: `Change ${count}`, exact: true }).click()
  const dialog = page.getByRole('dialog')
  await dialog.waitFor()
  return dialog
}

it('selected contacts change by one dialog that lists each, and a hidden character in a name is visible', async (t) => {
  const hidden = 'we\u202eb\u200b1'
  const { page, changes, complaints } = await contactsHost(t, [contactAt(1, hidden), contactAt(2), contactAt(3)])
  await page.getByRole('checkbox', { name: 'Select we\\u202eb\\u200b1' }).focus()
  await page.keyboard.press('Space')
  await page.getByRole('checkbox', { name: 'Select web002' }).check()
  const dialog = await openDialog(page, '2 contacts')
  assert.equal(await dialog.getByRole('button', { name: 'Nothing to change' }).isDisabled(), true)
  await dialog.getByRole('radio', { name: /^trusted/ }).check()
  await dialog.getByLabel(/^Labels to set/).fill('site')
  await dialog.getByText('"site" is not a label').waitFor()
  await dialog.getByLabel(/^Labels to set/).fill('role= site=ber')
  const items = dialog.getByRole('listitem')
  await until(async () => (await items.count()) === 2)
  const [second = '', first = ''] = await items.allTextContents()
  assert.match(first, /^we\\u202eb\\u200b1 \(without a pin\)Labels: sets site=ber/)
  assert.match(second, /^web002 \(without a pin\)Labels: sets site=ber, removes role.*Trust: known becomes trusted: the ACL decides/)
  await dialog.getByRole('button', { name: 'Change 2 contacts' }).click()
  await page.getByText('2 of 2 contacts changed.').waitFor()
  await dialog.waitFor({ state: 'detached' })
  await page.getByText('Changed contacts').click()
  await page.getByText('we\\u202eb\\u200b1: changed').waitFor()
  assert.deepEqual(changes, [
    { kind: 'label', contact: 'web002', labels: { role: null, site: 'ber' } },
    { kind: 'trust', contact: 'web002', level: 'trusted' },
    { kind: 'label', contact: hidden, labels: { site: 'ber' } },
  ])
  await page.getByText('0 selected').waitFor()
  assert.deepEqual(complaints, [])
})

it('a contact that was removed meanwhile fails alone, and its failure is shown', async (t) => {
  const { page, contacts, changes } = await contactsHost(t, many(4))
  await page.getByRole('button', { name: 'Select all 4 of this list' }).click()
  await page.getByText('4 selected').waitFor()
  contacts.delete('web003')
  const dialog = await openDialog(page, '4 contacts')
  await dialog.getByText('Removed meanwhile: web003').waitFor()
  await dialog.getByRole('radio', { name: /^blocked/ }).check()
  contacts.delete('web001')
  await dialog.getByRole('button', { name: 'Change 3 contacts' }).click()
  const result = page.getByRole('region', { name: 'Result of the change' })
  await result.getByText('2 of 4 contacts changed. 2 not or not completely:').waitFor()
  await result.getByText('web003: removed meanwhile').waitFor()
  await result.getByText('web001: no contact "web001"').waitFor()
  assert.deepEqual(
    changes.map(({ contact }) => contact),
    ['web000', 'web002'],
  )
  await page.getByText('1 selected').waitFor()
  // The result stays when another view was open meanwhile.
  await page.evaluate("location.hash = '#/peers'")
  await page.getByRole('heading', { name: 'Peers' }).waitFor()
  await page.evaluate("location.hash = '#/trust'")
  await result.getByText('web003: removed meanwhile').waitFor()
  await result.getByRole('button', { name: 'Close the result' }).click()
  await result.waitFor({ state: 'detached' })
})

it('201 contacts are refused, and the server refuses them as well', async (t) => {
  const { page, changes, ...host } = await contactsHost(t, many(201))
  await page.getByRole('button', { name: 'Select all 201 of this list' }).click()
  await page.getByText('At most 200 contacts can be changed at once.').waitFor()
  await page.getByText('0 selected').waitFor()
  await page.getByLabel('Find').fill('role=db')
  await page.getByRole('button', { name: 'Select all 101 of this list' }).click()
  await page.getByText('101 selected').waitFor()
  await page.getByLabel('Find').fill('')
  await page.getByLabel('Trust').selectOption('trusted')
  await page.getByRole('button', { name: 'Select all 100 of this list' }).click()
  await page.getByText('At most 200 contacts can be changed at once.').waitFor()
  await page.getByText('101 selected').waitFor()
  await page.getByLabel('Find').fill('nowhere')
  await page.getByText('No contact matches these filters.').waitFor()
  await page.getByRole('button', { name: 'Clear the filters' }).click()
  await page.getByText('1 to 50 of 201 contacts').waitFor()
  const session = await signInTo(host)
  const ids = (count: number) => Array.from({ length: count }, (_, at) => contactAt(at).agent_id)
  const ask = async (count: number) =>
    askPage(host, '/api/contacts', {
      headers: pageHeaders(host, session),
      body: JSON.stringify({ text: '', level: null, agents: ids(count), from: 0 }),
    })
  assert.equal((await ask(201)).status, 400)
  const { status, text } = await ask(200)
  assert.deepEqual([status, (JSON.parse(text) as { rows: unknown[] }).rows.length], [200, 200])
  assert.deepEqual(changes, [])
})

it('200 contacts change within the rate of the page, and no further one can be selected', async (t) => {
  const { page, changes, complaints } = await contactsHost(t, many(201))
  for (const text of ['web1', 'web0']) {
    await page.getByLabel('Find').fill(text)
    await page.getByRole('checkbox', { name: `Select ${text}00` }).waitFor()
    await page.getByText('1 to 50 of 100 contacts').waitFor()
    await page.getByRole('button', { name: 'Select all 100 of this list' }).click()
    await page.getByRole('checkbox', { name: `Select ${text}49`, checked: true }).waitFor()
  }
  await page.getByText('200 selected, which is the most for one change').waitFor()
  await page.getByLabel('Find').fill('web200')
  const last = page.getByRole('checkbox', { name: 'Select web200' })
  await last.waitFor()
  assert.equal(await last.isDisabled(), true)
  const dialog = await openDialog(page, '200 contacts')
  await dialog.getByLabel(/^Labels to set/).fill('site=ber')
  await dialog.getByRole('button', { name: 'Change 200 contacts' }).click()
  await page.getByText('200 of 200 contacts changed.').waitFor()
  assert.equal(new Set(changes.map(({ contact }) => contact)).size, 200)
  assert.deepEqual(complaints, [])
})

it('Escape stops a change after the present contact, and the result says what was not changed', async (t) => {
  const host = await contactsHost(t, many(3))
  const { page, changes } = host
  await page.getByRole('button', { name: 'Select all 3 of this list' }).click()
  const dialog = await openDialog(page, '3 contacts')
  await dialog.getByRole('radio', { name: /^blocked/ }).check()
  const { promise, resolve } = Promise.withResolvers<void>()
  host.gate = promise
  await dialog.getByRole('button', { name: 'Change 3 contacts' }).click()
  await dialog.getByText('0 of 3 contacts done.').waitFor()
  await page.keyboard.press('Escape')
  await dialog.waitFor({ state: 'detached' })
  resolve()
  await page.getByText('1 of 3 contacts changed. 2 not or not completely:').waitFor()
  await page.getByText('web001: not changed, because you stopped').waitFor()
  assert.equal(changes.length, 1)
  await page.getByText('2 selected').waitFor()
})

it('the selection and its dialog fit a phone and have no fault that axe-core calls serious', async (t) => {
  const { page } = await contactsHost(t, many(60))
  await page.getByRole('button', { name: 'Select all 60 of this list' }).click()
  await page.getByText('60 selected').waitFor()
  await screenshots(page, 'bulk-selection')
  const dialog = await openDialog(page, '60 contacts')
  await dialog.getByRole('radio', { name: /^trusted/ }).check()
  await dialog.getByLabel(/^Labels to set/).fill('site=ber role=')
  await screenshots(page, 'bulk-dialog')
  for (const width of [390, 1280])
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.setViewportSize({ width, height: 844 })
      await page.emulateMedia({ colorScheme })
      assert.equal(await page.evaluate('document.documentElement.scrollWidth'), width)
      assert.deepEqual(await seriousFaults(page), [], `${width} ${colorScheme}`)
    }
  await dialog.getByRole('button', { name: 'Change 60 contacts' }).click()
  await page.getByText('60 of 60 contacts changed.').waitFor()
  await screenshots(page, 'bulk-result')
  assert.deepEqual(await seriousFaults(page), [])
})
