import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { aliceBobCharlie } from '../../test/support/mesh-of-daemons.ts'
import { linkOf, meshWithUi } from '../../test/support/ui-program.ts'
import { openPage, screenshots, seriousFaults, skipsBrowser, WITHOUT_BROWSER } from './browser.ts'

test(
  `the page of bob shows hosts, runs, denials and logs, allows a request and changes a trust level${WITHOUT_BROWSER}`,
  { skip: skipsBrowser },
  async (t) => {
    const { mesh, serve } = await meshWithUi(t)
    const go = join(mesh.root, 'go')
    const slow = await mesh.program('slow', `echo begun; while [ ! -e ${go} ]; do sleep 0.05; done; echo over`)
    const { alice, bob, charlie } = await aliceBobCharlie(mesh, [['echo', 'hello'], [slow]], '', [['echo', 'asked']])
    const ui = serve(bob)
    const { page, complaints } = await openPage(t)
    await page.goto(linkOf(await ui.next()).url)
    await page.getByText('Connected to x0xd of bob. Nothing waits.').waitFor()
    const open = async (view: string): Promise<void> => page.getByRole('navigation').getByRole('link', { name: view }).click()

    // A host appears, with its labels, path and round-trip time.
    await open('Peers')
    await page.getByRole('row', { name: /alice/ }).waitFor()
    const dora = mesh.add('dora')
    await dora.start()
    await bob.meet(dora, 'known')
    await dora.meet(bob, 'trusted')
    await bob.ok('contacts', 'label', 'dora', 'role=db')
    await bob.ok('ping', 'dora')
    const row = page.getByRole('row', { name: /dora/ })
    await row.getByText('role=db').waitFor()
    await row.getByText('linked').waitFor()
    await row.getByText('direct').waitFor()
    // The page asks the host for its version.
    await row.getByText(/^\d+\.\d+\.\d+/).waitFor()
    await screenshots(page, 'fleet-peers')

    // The output of a run appears while it runs.
    await open('Runs')
    const running = alice.startCli(['exec', 'bob', '--', slow])
    await page
      .getByRole('row', { name: /running/ })
      .getByRole('link')
      .click()
    await page.getByRole('region', { name: 'Output so far' }).getByText('begun').waitFor()
    await page.getByText('alice').first().waitFor()
    await screenshots(page, 'fleet-run')
    await writeFile(go, '')
    assert.equal((await running.finished).status, 0)
    await page.getByRole('region', { name: 'End of the output' }).getByText('over').waitFor()
    await page.getByText('exit 0').waitFor()

    // A request is allowed. Every view says that it waits.
    const asked = alice.startCli(['exec', 'bob', '--', 'echo', 'asked'])
    await page.getByText('Connected to x0xd of bob. 1 approval waits.').waitFor()
    await page.getByRole('link', { name: /waits for your decision/ }).click()
    await page.getByRole('article').waitFor()
    await page.waitForTimeout(700)
    await page.getByRole('button', { name: 'Allow once' }).click()
    const allowed = await asked.finished
    assert.deepEqual([allowed.status, allowed.stdout.toString()], [0, 'asked\n'])

    // A denial is explained, with the rule and what the ACL says now.
    assert.notEqual((await alice.exec('bob', ['cat', '/etc/shadow'])).status, 0)
    await open('Runs')
    await page.getByLabel('Result').selectOption('denied')
    await page.getByRole('link', { name: 'cat /etc/shadow' }).click()
    await page.getByText('no ACL entry for this agent matches that command').waitFor()
    await page.getByRole('region', { name: 'Explanation of the ACL' }).getByText('argv_not_allowed').first().waitFor()
    assert.deepEqual(await seriousFaults(page), [])
    await screenshots(page, 'fleet-denial')

    // The log describes the events in sentences.
    await open('Audit log')
    await page.getByText(/^alice ran .*slow on this machine: exit 0 in/).waitFor()
    await page.getByText('alice could not run cat /etc/shadow on this machine: argv_not_allowed').waitFor()
    await page.getByText(/^The operator changed the labels of dora/).waitFor()
    await screenshots(page, 'fleet-audit')

    // Bob's own runs have their results.
    await bob.ok('exec', 'dora', '--', 'true').catch(() => undefined)
    await open('Runs')
    await page.getByLabel('Show').selectOption('requested by this agent')
    await page
      .getByRole('row', { name: /this agent on dora/ })
      .getByText(/denied: /)
      .waitFor()

    // A trust level changes after a dialog, with the proof of the operator.
    await open('Trust')
    await page.getByRole('button', { name: 'Change charlie' }).click()
    await page.getByRole('radio', { name: /^blocked/ }).check()
    await page.getByRole('button', { name: 'Make this change' }).click()
    await page
      .getByRole('row', { name: /charlie/ })
      .getByText('blocked')
      .waitFor()
    const { contacts } = await bob.get<{ contacts: { agent_id: string; trust: string }[] }>('/contacts')
    assert.equal(contacts.find(({ agent_id }) => agent_id === charlie.agentId)?.trust, 'blocked')

    // The page reports that the daemon has stopped.
    await bob.stop()
    await page.getByText(/^No x0xd and no approval service answer in /).waitFor()
    assert.deepEqual(complaints, [])
  },
)
