import assert from 'node:assert/strict'
import { test } from 'node:test'

import { linkOf, meshWithUi } from '../../test/support/ui-program.ts'
import { openPage, screenshots, seriousFaults, skipsBrowser, WITHOUT_BROWSER } from './browser.ts'

test(
  `the page creates an enrolment key, shows a host that uses its token, and revokes the key${WITHOUT_BROWSER}`,
  { skip: skipsBrowser },
  async (t) => {
    const { mesh, serve } = await meshWithUi(t)
    const operator = mesh.add('operator')
    await operator.start()
    const ui = serve(operator)
    const { page, complaints } = await openPage(t)
    await page.goto(linkOf(await ui.next()).url)
    await page.getByText('Connected to x0xd of operator. Nothing waits.').waitFor()
    await page.getByRole('navigation').getByRole('link', { name: 'Enrolment' }).click()
    await page.getByText('No enrolment keys.').waitFor()

    // The dialog says what the key does before it is created.
    await page.getByRole('button', { name: 'Create a key' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Number of hosts').fill('0')
    await dialog.getByText('The number of hosts is from 1 to 1,000.').waitFor()
    await dialog.getByLabel('Number of hosts').fill('2')
    await dialog.getByLabel(/^Names of the hosts/).fill('web[1-2]')
    await dialog.getByLabel('Labels').fill('role=web')
    await dialog.getByText('Whoever has the token can enrol 2 hosts within 2 h. Each becomes a trusted contact').waitFor()
    assert.deepEqual(await seriousFaults(page), [])
    await dialog.getByRole('button', { name: 'Create the key' }).click()
    const command = await dialog.getByLabel('Command with the token').inputValue()
    const token = command.replace('x0xd --init --enrol ', '')
    // The token works only on this machine, and the page says so.
    await dialog.getByText('The token has only loopback addresses').waitFor()
    await dialog.getByRole('button', { name: 'Close' }).click()

    // A host enrols and becomes a contact with its name and label.
    await page.getByText('0 of 2 hosts').waitFor()
    assert.ok(!((await page.locator('body').textContent()) ?? '').includes(token))
    const host = mesh.add('host', { flags: ['--init', '--enrol', token] })
    await host.start()
    await page
      .getByRole('listitem')
      .filter({ hasText: 'web1' })
      .getByText(/^arrived/)
      .waitFor()
    await page.getByText('1 of 2 hosts').waitFor()
    await screenshots(page, 'enrol')
    const { contacts } = await operator.get<{ contacts: { name: string; trust: string; labels: object }[] }>('/contacts')
    assert.deepEqual(
      contacts.map(({ name, trust, labels }) => [name, trust, labels]),
      [['web1', 'trusted', { role: 'web' }]],
    )

    // The page revokes the key.
    await page.getByRole('button', { name: 'Revoke' }).click()
    await page.getByRole('button', { name: 'Revoke the key' }).click()
    await page.getByRole('article').getByText('revoked', { exact: true }).waitFor()
    assert.deepEqual(complaints, [])
  },
)
