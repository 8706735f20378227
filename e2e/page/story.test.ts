import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { pathsIn, type DataPaths } from '../../src/clients/paths.ts'
import { startMcp, X0X, type McpServer } from '../../test/support/mcp-server.ts'
import { tempDir } from '../../test/support/temp-dir.ts'
import { linkOf, startUi } from '../../test/support/ui-program.ts'
import { openPage, screenshots, seriousFaults, skipsBrowser, WITHOUT_BROWSER } from './browser.ts'
import { patient } from '../../test/support/wait-limits.ts'

const TOOLS = `
[tools.exec]
host = "gateway"
security = "allowlist"
ask = "on-miss"

[[tools.exec.always_ask]]
argv = ["git", "push", "<ANY...>"]
reason = "it leaves this host"
`

/** Starts `x0x desk` and waits until it is ready. A command that is on no list needs approval. */
const startDesk = async (t: TestContext, paths: DataPaths): Promise<void> => {
  const child = spawn(process.execPath, [X0X, 'desk', '--data-dir', paths.dir], { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = once(child, 'close')
  t.after(async () => {
    child.kill('SIGTERM')
    await ended
  })
  await Promise.race([once(child.stdout, 'data'), ended])
  const store = JSON.parse(await readFile(paths.approvals, 'utf8')) as { defaults: { security: string } }
  store.defaults.security = 'allowlist'
  await writeFile(paths.approvals, JSON.stringify(store, null, 2))
}

const script = async (server: McpServer, text: string): Promise<string> => {
  const path = join(server.dir, 'report')
  await writeFile(path, `#!/bin/sh\n${text}\n`)
  await chmod(path, 0o755)
  return path
}

test(
  `the page shows a request within a second, allows it once and denies it, and a changed script does not run${WITHOUT_BROWSER}`,
  { skip: skipsBrowser },
  async (t) => {
    const dir = await tempDir(t)
    const paths = pathsIn(dir)
    await startDesk(t, paths)
    const server = await startMcp(t, { mcp: `\n${TOOLS}` }, { env: { X0X_DATA_DIR: dir }, whoami: 'reviewer' })
    const ui = startUi(t, ['--data-dir', dir, '--config', server.config, '--json'])
    const { page, complaints } = await openPage(t)
    await page.goto(linkOf(await ui.next()).url)
    await page.getByText(/^Connected to/).waitFor()
    const open = async (view: string): Promise<void> => page.getByRole('navigation').getByRole('link', { name: view }).click()
    await open('Approvals')
    const waiting = page.locator('article:not(.settled)')
    const press = async (name: string): Promise<void> => {
      await waiting.first().waitFor()
      await page.waitForTimeout(700)
      await waiting.first().getByRole('button', { name }).click()
    }

    // Allow a command once.
    const command = await script(server, 'echo the report')
    const asked = performance.now()
    const allowed = server.run('exec_capture', { command })
    await waiting.waitFor()
    const first = performance.now() - asked
    await press('Allow once')
    const ran = await allowed
    assert.deepEqual([ran.success, ran.stdout], [true, 'the report\n'])
    await page.getByText('allowed by human:x0x ui').waitFor()

    // One byte of the script changes before the answer arrives.
    const again = performance.now()
    const changed = server.run('exec_capture', { command })
    await waiting.waitFor()
    // On a busy machine one of the two requests may be slow.
    assert.ok(Math.min(first, performance.now() - again) < patient(1_000), 'the page showed them too late')
    await script(server, 'echo the Report')
    await press('Allow once')
    assert.equal((await changed).denial_reason, 'approval_mismatch')

    // An always-ask command, and text that hides its content.
    const marker = join(server.root, 'ran')
    const push = server.run('exec_capture', { command: 'git', args: ['push', 'origin', 'ma\u202eni'] })
    await page.getByText('it leaves this host').waitFor()
    assert.ok(((await waiting.textContent()) ?? '').includes('ma\\u202eni'))
    const touch = server.run('exec_status', { command: 'touch', args: [marker] })
    await waiting.nth(1).waitFor()
    assert.deepEqual(await seriousFaults(page), [])
    await page.getByRole('button', { name: /Clear/ }).click()
    await screenshots(page, 'approvals')
    await press('Deny')
    assert.equal((await push).denial_reason, 'approval_denied')
    await press('Deny')
    assert.equal((await touch).denial_reason, 'approval_denied')

    // The output appears while the command runs.
    const go = join(server.root, 'go')
    const slow = server.run('exec_capture', {
      command: await script(server, `echo begun; while [ ! -e ${go} ]; do sleep 0.05; done; echo over`),
    })
    await press('Allow once')
    await open('Runs')
    await page
      .getByRole('row', { name: /running/ })
      .getByRole('link', { name: /report/ })
      .click()
    await page.getByRole('region', { name: 'Output so far' }).getByText('begun').waitFor()
    await page.getByRole('heading', { name: 'reviewer on this machine' }).waitFor()
    await page.getByText(/^mcp, session /).waitFor()
    await screenshots(page, 'run')
    await writeFile(go, '')
    assert.equal((await slow).stdout, 'begun\nover\n')
    await page.getByRole('region', { name: 'End of the output' }).getByText('over').waitFor()
    await page.getByText('exit 0').waitFor()

    // The policy view shows the limits and their sources.
    await open('Policy')
    await page.getByText('by [tools.exec] of the file').first().waitFor()
    await page.getByText('All AI agents', { exact: true }).waitFor()
    assert.deepEqual(await seriousFaults(page), [])
    await screenshots(page, 'policy')

    // The runs view lists results and denials in words.
    await open('Runs')
    await page
      .getByRole('row', { name: /report/ })
      .getByText('exit 0')
      .first()
      .waitFor()
    await screenshots(page, 'runs')

    // The log describes the decisions in sentences.
    await open('Audit log')
    await page.getByRole('combobox', { name: /^Log/ }).selectOption('approval log')
    await page
      .getByText(/^reviewer asked to run .*report on this machine: allowed by human:x0x ui$/)
      .first()
      .waitFor()
    await page.getByText(/^reviewer asked to run git push origin .*: denied by human:x0x ui$/).waitFor()
    assert.deepEqual(await seriousFaults(page), [])
    await screenshots(page, 'approval-log')

    // The only approval client is closed.
    await page.close()
    await new Promise((resolve) => setTimeout(resolve, 1_500))
    const alone = performance.now()
    const nobody = await server.run('exec_status', { command: 'touch', args: [marker] })
    assert.equal(nobody.denial_reason, 'approval_unavailable')
    assert.ok(performance.now() - alone < patient(2_000))
    await assert.rejects(stat(marker))
    assert.deepEqual(complaints, [])
  },
)
