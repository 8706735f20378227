import assert from 'node:assert/strict'
import { test } from 'node:test'

import { linkOf, meshWithUi } from '../../test/support/ui-program.ts'
import { openPage, skipsBrowser, WITHOUT_BROWSER } from './browser.ts'

interface Listed {
  readonly contacts: readonly { readonly name: string; readonly trust: string; readonly labels: Readonly<Record<string, string>> }[]
}

test(
  `a daemon changes all selected contacts but the one that was removed, each with a proof${WITHOUT_BROWSER}`,
  { skip: skipsBrowser },
  async (t) => {
    const { mesh, serve } = await meshWithUi(t)
    const [alice, bob, carol, dave] = [mesh.add('alice'), mesh.add('bob'), mesh.add('carol'), mesh.add('dave')]
    await Promise.all([alice, bob, carol, dave].map(async (daemon) => daemon.start()))
    for (const contact of [bob, carol, dave]) await alice.meet(contact, 'known')
    const { page, complaints } = await openPage(t)
    await page.goto(linkOf(await serve(alice).next()).url)
    await page.getByText(/^Connected to x0xd of alice/).waitFor()
    await page.evaluate("location.hash = '#/peers?order=-name'")
    await page.getByRole('link', { name: 'dave' }).waitFor()
    assert.deepEqual(await page.locator('tbody td.wide').allTextContents(), ['dave', 'carol', 'bob'])
    await page.evaluate("location.hash = '#/trust'")
    await page.getByRole('button', { name: 'Select all 3 of this list' }).click()
    await page.getByRole('button', { name: 'Change 3 contacts' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByRole('radio', { name: /^trusted/ }).check()
    await dialog.getByLabel(/^Labels to set/).fill('site=ber')
    await alice.ok('contacts', 'remove', 'carol')
    await dialog.getByRole('button', { name: 'Change 3 contacts' }).click()
    await page.getByText('2 of 3 contacts changed. 1 not or not completely:').waitFor()
    await page.getByText(/^carol: /).waitFor()
    const { contacts } = await alice.get<Listed>('/contacts')
    assert.deepEqual(
      contacts.map(({ name, trust, labels }) => [name, trust, labels]),
      [
        ['bob', 'trusted', { site: 'ber' }],
        ['dave', 'trusted', { site: 'ber' }],
      ],
    )
    // The one expected error is the answer about carol.
    assert.deepEqual(
      complaints.filter((text) => !text.includes('404')),
      [],
    )
  },
)
