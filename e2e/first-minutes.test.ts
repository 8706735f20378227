import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { talkWith } from '../test/support/dialogue.ts'
import { cleanEnvironment, MeshOfDaemons, until } from '../test/support/mesh-of-daemons.ts'
import { ownPort } from '../test/support/own-port.ts'

const ROOT = join(import.meta.dirname, '..')

/** The lines of the first console block of the README, and who types each. */
const readmeLines = async (): Promise<{ who: string; line: string }[]> => {
  const [, section = ''] = (await readFile(join(ROOT, 'README.md'), 'utf8')).split('\n## Two machines, six commands\n')
  const [, block = ''] = /```console\n([^]*?)```/.exec(section) ?? []
  return block
    .trim()
    .split('\n')
    .map((text) => {
      const [, who = '', line = ''] = /^(\w+)\$ (.+)$/.exec(text) ?? []
      assert.ok(line !== '', text)
      return { who, line }
    })
}

/** A machine from the view of a user: a home directory, a port, and the programs on the PATH. */
const machine = async (t: TestContext, root: string, name: string): Promise<Record<string, string>> => {
  const home = join(root, name)
  await mkdir(join(home, 'bin'), { recursive: true, mode: 0o700 })
  for (const [program, file] of [
    ['x0x', 'x0x.cjs'],
    ['x0xd', 'x0xd.mjs'],
  ] as const)
    await writeFile(join(home, 'bin', program), `#!/bin/sh\nexec '${process.execPath}' '${join(ROOT, 'dist', file)}' "$@"\n`, {
      mode: 0o755,
    })
  t.after(async () => {
    const pid = Number((await readFile(join(home, '.x0x', 'x0xd.pid'), 'utf8').catch(() => '')).split(' ')[0])
    if (pid > 0) process.kill(pid, 'SIGTERM')
    await until('its daemon is gone', async () => !(await readdir(join(home, '.x0x'))).includes('x0xd.pid'))
  })
  const listen = `/ip4/127.0.0.1/tcp/${await ownPort()}`
  return { ...cleanEnvironment(), HOME: home, PATH: `${join(home, 'bin')}:${process.env['PATH']}`, X0X_LISTEN: listen, X0X_MDNS: 'false' }
}

/** Runs a line that ends with `&`. Resolves when the daemon prints that it is ready. */
const background = async (line: string, env: Record<string, string>): Promise<void> => {
  const child = spawn('bash', ['-c', line], { env, stdio: ['ignore', 'pipe', 'ignore'] })
  for await (const part of child.stdout) if (String(part).includes(' ready: ')) break
  child.stdout.destroy()
}

test('the lines of the README lead from two empty machines to the first command', async (t) => {
  const lines = await readmeLines()
  assert.ok(lines.length <= 6, `${lines.length} commands`)
  const mesh = await MeshOfDaemons.create('x0x-first-')
  const homes = { bob: await machine(t, mesh.root, 'bob'), alice: await machine(t, mesh.root, 'alice') }
  // Registered after both daemons, so that they stop first.
  t.after(async () => mesh.stop())
  const envOf = (who: string) => homes[who as keyof typeof homes]
  const shell = ({ who, line }: { who: string; line: string }) => talkWith(['bash', '-c', line], envOf(who))
  const [first, second, inviting, joining, again, asking] = lines
  assert.ok(first && second && inviting && joining && again && asking)

  await background(first.line, envOf(first.who))
  await background(second.line, envOf(second.who))
  const dir = join(mesh.root, 'bob', '.x0x')
  for (const name of ['', 'agent.key', 'machine.key', 'operator.key', 'config.toml', 'exec-acl.toml'])
    assert.equal((await stat(join(dir, name))).mode & 0o077, 0, name)

  const invite = shell(inviting)
  const line = await invite.until(/x0x:\/\/invite\/\S+/)
  assert.ok(joining.line.includes('x0x://invite/…'))
  const join_ = shell({ ...joining, line: joining.line.replace('x0x://invite/…', line) })
  await invite.type(await join_.until(/x0x:\/\/reply\/\S+/))
  await join_.type(await invite.until(/\w{4}-\w{4}-\w{4}/))
  await invite.type(await join_.until(/(?<=Read this back aloud: {2})\w{4}/))
  assert.deepEqual([(await invite.ended).status, (await join_.ended).status], [0, 0])

  const early = await shell(asking).ended
  assert.equal(early.status, 255, early.text)
  const [denied] = [await talkWith(['bash', '-c', 'x0x acl suggest --agent alice'], homes.bob).ended]
  assert.deepEqual([denied.status, denied.stdout], [1, ''], 'the invitation has suggested it already')
  assert.match(denied.text, /already has this command: not in force: /)
  const acl = await readFile(join(dir, 'exec-acl.toml'), 'utf8')

  await background(again.line, envOf(again.who))
  const { status, stdout, text } = await shell(asking).ended
  assert.equal(status, 0, text)
  assert.match(stdout, /^Filesystem/)

  const dry = await talkWith(['bash', '-c', 'x0x init --dry-run --json'], homes.bob).ended
  const { files } = JSON.parse(dry.stdout) as { files: { state: string }[] }
  assert.deepEqual([files.length, files.every(({ state }) => state === 'was there')], [6, true])
  assert.equal(await readFile(join(dir, 'exec-acl.toml'), 'utf8'), acl)
})
