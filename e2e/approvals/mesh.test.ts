import assert from 'node:assert/strict'
import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import type { Page } from 'playwright-core'

import { linkOf, startUi } from '../../test/support/ui-program.ts'
import { openPage, seriousFaults, skipsBrowser, WITHOUT_BROWSER } from '../page/browser.ts'
import { WatchingHuman } from '../../test/support/mesh-approvals.ts'
import { MeshOfDaemons, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import { patient } from '../../test/support/wait-limits.ts'

// A target asks its own approver and other agents before it runs a command of a peer. Uses three real daemons and the real command line.

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let charlie: TestDaemon
let script: string

interface Result {
  readonly ok: boolean
  readonly denial_reason: string | null
  readonly stdout_b64: string
  readonly warnings: readonly string[]
  readonly waited_ms?: number
}

const approvers = (...daemons: readonly TestDaemon[]): string =>
  `approvers = [${daemons.map(({ agentId }) => `{ agent_id = ${JSON.stringify(agentId)} }`).join(', ')}]\n`

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;[alice, bob, charlie] = [mesh.add('alice'), mesh.add('bob'), mesh.add('charlie')]
  await Promise.all([alice.start(), bob.start(), charlie.start()])
  await Promise.all([alice.meet(bob, 'known'), charlie.meet(bob, 'trusted')])
  await bob.meet(alice, 'trusted')
  await bob.meet(charlie, 'trusted')
  script = join(mesh.root, 'deploy')
  await writeFile(script, '#!/bin/sh\necho deployed\n', { mode: 0o700 })
  await bob.writeAcl([
    { agent: alice, commands: [['echo', 'free']], description: 'free' },
    { agent: alice, commands: [['echo', 'asked'], ['cat'], [script]], description: 'asked', keys: 'ask = "always"\n' },
    {
      agent: alice,
      commands: [['echo', 'both']],
      description: 'both',
      keys: `ask = "always"\n${approvers(charlie)}approvals_needed = 1\n`,
    },
    { agent: alice, commands: [['echo', 'agents']], description: 'agents', keys: approvers(charlie) },
    {
      agent: alice,
      commands: [['echo', 'listed']],
      description: 'patterns',
      keys: 'ask = "on-miss"\nask_patterns = [{ argv = ["printf", "<ANY...>"] }]\n',
    },
  ])
  await bob.restart()
})

after(async () => mesh.stop())

const ask = (...argv: readonly string[]): Promise<Result> =>
  alice.cli(['--json', 'exec', 'bob', '--', ...argv]).then(({ stdout }) => JSON.parse(stdout.toString()) as Result)
const text = ({ stdout_b64 }: Result): string => Buffer.from(stdout_b64, 'base64').toString()
const denialsOf = async (daemon: TestDaemon): Promise<string[]> =>
  (await daemon.journal()).filter(({ event }) => event === 'denial').map(({ detail }) => String(detail))

test('a command of an ACL entry without approval runs at once, and no approver is asked', async () => {
  const result = await ask('echo', 'free')
  assert.deepEqual([text(result), result.waited_ms], ['free\n', undefined])
})

test('the approver of the target sees the whole request and allows it once, and the next run needs approval again', async () => {
  const human = await WatchingHuman.at(bob)
  const run = alice.startCli(['exec', 'bob', '--', 'echo', 'asked'])
  const pending = await human.next()
  const { question } = pending
  assert.deepEqual(question.argv, ['echo', 'asked'])
  assert.deepEqual([question.door, question.ask, question.asker.kind], ['mesh', 'always', 'mesh'])
  assert.equal(question.asker.kind === 'mesh' && question.asker.agent_id, alice.agentId)
  assert.equal(question.asker.kind === 'mesh' && question.asker.machine_id, alice.machineId)
  assert.match(question.why, /always/)
  assert.match(await alice.ok('exec', 'sessions'), /waiting_for_approval/)
  await human.decide(pending, 'allow_once')
  const { status, stdout, stderr } = await run.finished
  assert.deepEqual([status, stdout.toString()], [0, 'asked\n'])
  assert.match(stderr, /^x0x: waiting for approval: an approver of bob; \d:\d\d left, Ctrl-C withdraws it\n/)
  const again = ask('echo', 'asked')
  await human.decide(await human.next(), 'deny')
  const { ok, denial_reason, waited_ms } = await again
  assert.deepEqual([ok, denial_reason, typeof waited_ms], [false, 'approval_denied', 'number'])
  assert.ok((await denialsOf(bob)).some((detail) => detail.includes('refused it')))
  human.close()
})

test('without an approval client the target denies the request at once', async () => {
  const began = performance.now()
  const result = await ask('echo', 'asked')
  assert.equal(result.denial_reason, 'approval_unavailable')
  assert.ok(performance.now() - began < patient(5_000))
  assert.ok((await denialsOf(bob)).some((detail) => detail.includes('no approver is connected')))
})

test('killing the requester withdraws its approval request', async () => {
  const human = await WatchingHuman.at(bob)
  const run = alice.startCli(['exec', 'bob', '--', 'echo', 'asked'])
  await human.next()
  run.child.kill('SIGKILL')
  await human.nothingWaits()
  await run.finished
  human.close()
})

test('a script that changes between the approval request and the approval does not run', async () => {
  const human = await WatchingHuman.at(bob)
  const run = ask(script)
  const pending = await human.next()
  await writeFile(script, '#!/bin/sh\necho owned\n')
  await chmod(script, 0o700)
  await human.decide(pending, 'allow_once')
  const result = await run
  assert.deepEqual([result.ok, result.denial_reason, text(result)], [false, 'approval_denied', ''])
  human.close()
})

test('a command that also needs the approval of another agent runs only if both allow it', async () => {
  const [ofBob, ofCharlie] = [await WatchingHuman.at(bob, 'bob'), await WatchingHuman.at(charlie, 'charlie')]
  const refused = ask('echo', 'both')
  const [here, there] = [await ofBob.next(), await ofCharlie.next()]
  assert.deepEqual(there.question.argv, ['echo', 'both'])
  assert.deepEqual(there.question.target, { host: 'node', agent_id: bob.agentId })
  assert.equal(there.question.permit_sha256, here.question.permit_sha256)
  assert.equal(there.question.grant_sha256, null)
  await ofBob.decide(here, 'allow_once')
  await ofCharlie.decide(there, 'deny')
  assert.equal((await refused).denial_reason, 'approval_denied')
  assert.ok((await denialsOf(bob)).some((detail) => /0 of 1 approvals .*refused: /.test(detail)))
  const run = alice.startCli(['exec', 'bob', '--', 'echo', 'both'])
  await ofCharlie.decide(await ofCharlie.next(), 'allow_once')
  await ofBob.decide(await ofBob.next(), 'allow_once')
  const { status, stdout, stderr } = await run.finished
  assert.deepEqual([status, stdout.toString()], [0, 'both\n'], stderr)
  assert.match(stderr, /1 of 1 approvals of other agents given/)
  const lines = (await bob.journal()).filter(({ event, argv }) => event === 'request' && String(argv) === 'echo,both')
  assert.deepEqual(
    lines.map((line) => line['approved_by']),
    [`human:bob+agents:${charlie.agentId}`],
  )
  for (const human of [ofBob, ofCharlie]) human.close()
})

test(
  `in browsers, a command runs only with the approvals of bob and charlie, and a changed script does not run${WITHOUT_BROWSER}`,
  {
    skip: skipsBrowser,
  },
  async (t) => {
    const pageOf = async ({ dir }: TestDaemon): Promise<Page> => {
      // A browser slows down a tab in the background.
      const { page } = await openPage(t)
      const ui = startUi(t, ['--data-dir', dir, '--json'])
      await page.goto(linkOf(await ui.next()).url)
      await page.getByText(/^Connected to/).waitFor()
      await page.getByRole('navigation').getByRole('link', { name: 'Approvals' }).click()
      return page
    }
    const [ofBob, ofCharlie] = await Promise.all([pageOf(bob), pageOf(charlie)])
    const waiting = (page: Page) => page.locator('article:not(.settled)')
    const press = async (page: Page, name: string): Promise<void> => {
      await waiting(page).waitFor()
      await page.waitForTimeout(700)
      await waiting(page).getByRole('button', { name }).click()
      await waiting(page).waitFor({ state: 'detached' })
    }

    // Both approvers are asked. After the approver of bob allows the command, it still waits for the approver of charlie.
    const run = alice.startCli(['exec', 'bob', '--', 'echo', 'both'])
    await waiting(ofBob).getByText(`1 of these agents: ${charlie.agentId}`).waitFor()
    await waiting(ofBob).getByText(`A request signed by this agent's key, over a link that proved machine ${alice.machineId}.`).waitFor()
    await press(ofBob, 'Allow once')
    assert.match(await alice.ok('exec', 'sessions'), /waiting_for_approval/)
    await waiting(ofCharlie).getByText(`on agent ${bob.agentId}`).first().waitFor()
    await press(ofCharlie, 'Allow once')
    const { status, stdout } = await run.finished
    assert.deepEqual([status, stdout.toString()], [0, 'both\n'])

    // Charlie refuses.
    const refused = ask('echo', 'both')
    await press(ofBob, 'Allow once')
    await press(ofCharlie, 'Deny')
    assert.equal((await refused).denial_reason, 'approval_denied')

    // The script changes before the answer arrives, so the hash of the answer no longer matches.
    const changed = ask(script)
    await waiting(ofBob).waitFor()
    await writeFile(script, `#!/bin/sh\necho changed ${process.pid}\n`)
    await press(ofBob, 'Allow once')
    assert.equal((await changed).denial_reason, 'approval_denied')
    await ofBob.route('**/api/decide', async (route) => {
      const body = JSON.parse(route.request().postData() ?? '') as { permit_sha256: string }
      await route.continue({ postData: JSON.stringify({ ...body, permit_sha256: body.permit_sha256.replaceAll(/./g, '0') }) })
    })
    const asked = ask('echo', 'asked')
    await waiting(ofBob).waitFor()
    await ofBob.waitForTimeout(700)
    await waiting(ofBob).getByRole('button', { name: 'Allow once' }).click()
    await ofBob
      .locator('.said')
      .getByText(/permit/)
      .waitFor()
    await ofBob.unroute('**/api/decide')
    await press(ofBob, 'Deny')
    assert.equal((await asked).denial_reason, 'approval_denied')

    // The approver of the target sees the output of the run.
    const seen = alice.startCli(['exec', 'bob', '--stdin-file', '-', '--', 'cat'], { stdin: Buffer.from('what came by the mesh\n') })
    await press(ofBob, 'Allow once')
    await seen.finished
    await ofBob.getByRole('navigation').getByRole('link', { name: 'Runs' }).click()
    await ofBob.getByRole('link', { name: 'cat', exact: true }).first().click()
    await ofBob.getByRole('region', { name: 'End of the output' }).getByText('what came by the mesh').waitFor()
    assert.deepEqual(await seriousFaults(ofBob), [])
  },
)

test('an ACL entry that names only other approvers does not ask an approver of the target', async () => {
  const [ofBob, ofCharlie] = [await WatchingHuman.at(bob, 'bob'), await WatchingHuman.at(charlie, 'charlie')]
  const run = ask('echo', 'agents')
  await ofCharlie.decide(await ofCharlie.next(), 'allow_once')
  assert.equal(text(await run), 'agents\n')
  assert.equal((await ofBob.desk.pending()).questions.length, 0)
  for (const human of [ofBob, ofCharlie]) human.close()
})

test('if the requester cancels a run, its approval requests are withdrawn', async () => {
  const ofCharlie = await WatchingHuman.at(charlie, 'charlie')
  const run = alice.startCli(['exec', 'bob', '--', 'echo', 'agents'])
  await ofCharlie.next()
  run.child.kill('SIGINT')
  await ofCharlie.nothingWaits()
  await run.finished
  ofCharlie.close()
})

test('a daemon that is killed while it asks runs no command, and its next start closes the request', async () => {
  const human = await WatchingHuman.at(bob)
  const run = alice.cli(['exec', 'bob', '--', 'echo', 'asked'])
  const { question_id } = await human.next()
  human.close()
  await bob.stop('SIGKILL')
  const { status, stdout, stderr } = await run
  assert.deepEqual([status, stdout.toString()], [255, ''])
  assert.notEqual(stderr.toString(), '')
  await bob.start()
  const again = await WatchingHuman.at(bob)
  const { lines } = (await again.desk.history(100)) as { readonly lines: readonly Record<string, unknown>[] }
  const became = lines.filter((line) => line['event'] === 'approval' && line['question_id'] === question_id)
  assert.deepEqual(
    became.map(({ outcome }) => outcome),
    ['desk_gone'],
  )
  again.close()
})
