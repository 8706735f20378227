import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { systemClock } from '../../src/base/clock.ts'
import { holdDirectory, type OpenDirectory } from '../../src/fs/beneath.ts'
import { authorizeFile } from '../../src/policy/local/authorize.ts'
import type { Permit } from '../../src/policy/permit.ts'
import { directoryOf, planLaunch } from '../../src/process/launch-plan.ts'
import { startProcess } from '../../src/process/running-process.ts'
import { terminalProblem } from '../../src/process/terminal.ts'
import { fileScene, type Scene } from '../support/file-permit.ts'
import { askRun, EVERY_GRANT, permitted, policyOf, rightsOf } from '../support/local-policy.ts'
import { groupCells, hasProc, startGuardian } from '../support/processes.ts'

const linuxOnly = { skip: !hasProc && 'elsewhere a program starts by the path of its directory' }

/** `app/work` below the root, and `app2/work` outside it. */
const twoPlaces = async (t: TestContext): Promise<Scene> => {
  const scene = await fileScene(t)
  for (const place of [scene.inside, scene.outside]) {
    await mkdir(join(place, 'work'))
    await writeFile(join(place, 'work', 'who'), place)
  }
  return scene
}

/** Opens a directory below the root, like a session does. */
const hold = async (t: TestContext, { inside }: Scene, path: string): Promise<OpenDirectory> => {
  const verdict = authorizeFile({ path, access: 'read' }, rightsOf(policyOf([inside])))
  assert.ok(verdict.kind === 'permit')
  const held = await holdDirectory(verdict.permit)
  t.after(() => held[Symbol.dispose]())
  return held
}

const permitIn = ({ inside }: Scene, { real: path, descriptor }: OpenDirectory, argv: readonly string[], terminal = false): Permit =>
  permitted(
    askRun(
      policyOf([inside], { security: EVERY_GRANT }),
      { argv, terminal: terminal ? { cols: 80, rows: 24 } : null },
      { cwd: { path, descriptor } },
    ),
  )

/** The output of a permitted program, or the reason why it did not start. */
const outputOf = async (t: TestContext, permit: Permit): Promise<string> => {
  const parts: Buffer[] = []
  const handlers = { onOutput: (_stream: string, data: Uint8Array) => void parts.push(Buffer.from(data)), onWarning: () => undefined }
  const components = { trees: await groupCells(), clock: systemClock, cleanup: startGuardian(t), handlers }
  const started = await startProcess(permit, components, { stdin: permit.terminal !== null })
  if (started.kind === 'spawn_failed') return `spawn_failed: ${started.detail}`
  started.process.resume()
  await started.process.ended
  return Buffer.concat(parts).toString().replaceAll('\r\n', '\n')
}

/** Replaces the directory by a link to a directory outside the root. */
const swap = async ({ inside, outside }: Scene): Promise<void> => {
  await rename(join(inside, 'work'), join(inside, 'moved'))
  await symlink(join(outside, 'work'), join(inside, 'work'))
}

test('a program starts in the opened directory, even if its path leads elsewhere by then', linuxOnly, async (t) => {
  const scene = await twoPlaces(t)
  const held = await hold(t, scene, 'work')
  const [print, look, touch] = [
    ['pwd', '-P'],
    ['cat', 'who'],
    ['touch', 'new'],
  ].map((argv) => permitIn(scene, held, argv))
  assert.equal(await outputOf(t, print!), `${scene.inside}/work\n`)
  await swap(scene)
  assert.equal(await outputOf(t, print!), `${scene.inside}/moved\n`)
  assert.equal(await outputOf(t, look!), scene.inside)
  assert.equal(await outputOf(t, touch!), '')
  assert.deepEqual([existsSync(join(scene.inside, 'moved/new')), existsSync(join(scene.outside, 'work/new'))], [true, false])
})

test('a program on a terminal also starts in the opened directory', linuxOnly, async (t) => {
  if (terminalProblem() !== null) return t.skip(terminalProblem()!)
  const scene = await twoPlaces(t)
  const held = await hold(t, scene, 'work')
  const permit = permitIn(scene, held, ['cat', 'who'], true)
  await swap(scene)
  assert.equal(await outputOf(t, permit), scene.inside)
})

test('a link inside the root is resolved once, when the directory is opened', linuxOnly, async (t) => {
  const scene = await twoPlaces(t)
  await symlink('work', join(scene.inside, 'link'))
  const held = await hold(t, scene, 'link')
  assert.equal(held.real, join(scene.inside, 'work'))
  const permit = permitIn(scene, held, ['cat', 'who'])
  await rm(join(scene.inside, 'link'))
  await symlink(join(scene.outside, 'work'), join(scene.inside, 'link'))
  assert.equal(await outputOf(t, permit), scene.inside)
})

test('a program does not get the descriptor of its directory', linuxOnly, async (t) => {
  const scene = await twoPlaces(t)
  const held = await hold(t, scene, 'work')
  // ls opens the directory that it lists.
  assert.deepEqual((await outputOf(t, permitIn(scene, held, ['ls', '/proc/self/fd']))).trim().split('\n'), ['0', '1', '2', '3'])
})

test('a closed directory is not used through its descriptor number, which may belong to another file', linuxOnly, async (t) => {
  const scene = await twoPlaces(t)
  const held = await hold(t, scene, 'work')
  const permit = permitIn(scene, held, ['pwd', '-P'])
  held[Symbol.dispose]()
  assert.match(await outputOf(t, permit), /^spawn_failed: the working directory/)
})

test('without a descriptor a program starts in the directory at the path', async (t) => {
  const scene = await twoPlaces(t)
  const cwd = { path: join(scene.inside, 'work'), descriptor: null }
  const permit = permitted(askRun(policyOf([scene.inside]), { argv: ['pwd', '-P'] }, { cwd }))
  assert.equal(directoryOf(permit), cwd.path)
  assert.equal(await outputOf(t, permit), `${cwd.path}\n`)
})

test('the path of the directory is not an argument of the started program', linuxOnly, async (t) => {
  const scene = await twoPlaces(t)
  const held = await hold(t, scene, 'work')
  const plan = planLaunch(permitIn(scene, held, ['pwd', '-P']), false)
  assert.ok(!('problem' in plan))
  assert.deepEqual([plan.args, plan.isWrapped, plan.inNamespace], [['-P'], false, false])
})
