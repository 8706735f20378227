import assert from 'node:assert/strict'
import { test } from 'node:test'

import { OPERATOR_PROOF_HEADER } from '../../src/identity/operator-proof.ts'
import { linkOf, meshWithUi } from '../../test/support/ui-program.ts'
import { openPage, skipsBrowser, WITHOUT_BROWSER } from './browser.ts'

/** Prints a line when SIGTERM arrives, so that its output shows how it ended. */
const WAITS = 'trap "echo ended by the signal; exit 3" TERM; echo ready; while :; do sleep 0.05; done'

test(
  `the page stops a run and a detached run of its agent after a dialog, and the logs have it${WITHOUT_BROWSER}`,
  { skip: skipsBrowser },
  async (t) => {
    const { mesh, serve } = await meshWithUi(t)
    const waits = await mesh.program('waits', WAITS)
    const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
    await alice.start()
    await bob.writeAcl([{ agent: alice, commands: [[waits]], keys: 'detach = true\nmax_detach_secs = 600\n' }])
    await bob.start()
    await alice.meet(bob, 'known')
    await bob.meet(alice, 'trusted')
    const ui = serve(alice)
    const { page, complaints } = await openPage(t)
    await page.goto(linkOf(await ui.next()).url)
    await page.getByText(/^Connected to x0xd of alice/).waitFor()
    const openRun = async (): Promise<void> => {
      await page.getByRole('navigation').getByRole('link', { name: 'Runs' }).click()
      await page
        .getByRole('row', { name: /running/ })
        .getByRole('link')
        .click()
      await page.getByRole('button', { name: 'Stop', exact: true }).waitFor()
    }
    const stop = async (): Promise<void> => {
      await page.getByRole('button', { name: 'Stop', exact: true }).click()
      await page.getByRole('dialog').getByText('sends SIGTERM to all its processes now').waitFor()
      await page.getByRole('button', { name: 'Stop the run' }).click()
    }

    // Neither a closed dialog nor a forged proof stops the run.
    const run = alice.startCli(['exec', 'bob', '--', waits])
    await run.printed('ready')
    await openRun()
    await page.getByRole('region', { name: 'Output so far' }).getByText('ready').waitFor()
    await page.getByRole('button', { name: 'Stop', exact: true }).click()
    await page.getByRole('button', { name: 'Let it run' }).click()
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    const sessions = async () => (await alice.get<{ sessions: { request_id: string; state: string }[] }>('/exec/sessions')).sessions
    const [{ request_id } = { request_id: '' }] = await sessions()
    const headers = { [OPERATOR_PROOF_HEADER]: `v1.${Date.now()}.${'A'.repeat(22)}.${'0'.repeat(64)}` }
    const forged = alice.api.json({ method: 'POST', path: '/exec/cancel', body: { request_id }, headers })
    await assert.rejects(forged, { code: 'operator_proof_required' })
    assert.deepEqual(
      (await sessions()).map((one) => [one.request_id, one.state]),
      [[request_id, 'running']],
    )

    await stop()
    const { status, stdout } = await run.finished
    assert.deepEqual([stdout.toString(), status === 0], ['ready\nended by the signal\n', false])
    await page.getByRole('region', { name: 'End of the output' }).getByText('ended by the signal').waitFor()
    await page.getByText('exit 3').waitFor()
    assert.equal(await page.getByRole('button', { name: 'Stop', exact: true }).count(), 0)

    // Without an audit log, the request log records the action of the operator.
    await page.getByRole('navigation').getByRole('link', { name: 'Audit log' }).click()
    await page.getByRole('combobox', { name: /^Log/ }).selectOption('requests')
    const line = page.getByRole('listitem').filter({ hasText: 'The operator ended a run that this agent requested' })
    await line.locator('summary').click()
    await line.getByText(request_id).waitFor()
    await page.getByText('A client tried exec_cancel without a valid proof: operator_proof_required').waitFor()

    // A detached run.
    const detached = (await alice.ok('exec', 'bob', '--detach', '--', waits)).trim()
    await openRun()
    await page.getByText('yes: it continues without its requester').waitFor()
    // The page asks the host for the output only after a click.
    await page.getByText(`Its host stores the output. To read it: x0x attach ${detached}`).waitFor()
    await page.getByRole('button', { name: 'Read the output' }).click()
    const output = page.getByRole('region', { name: 'End of the output' })
    await output.getByText('ready').waitFor()
    await stop()
    await page.getByText('exit 3').waitFor()
    await page.getByRole('button', { name: 'Read it again' }).click()
    await output.getByText('ended by the signal').waitFor()
    assert.match(await alice.ok('runs'), new RegExp(`${detached} +bob +ended 3`))
    await page.getByRole('navigation').getByRole('link', { name: 'Audit log' }).click()
    await page.getByRole('combobox', { name: /^Log/ }).selectOption('requests')
    const entry = page.getByRole('listitem').filter({ hasText: detached })
    await entry.locator('summary').click()
    await entry.getByText('cancel', { exact: true }).waitFor()

    assert.deepEqual(complaints, [])
  },
)
