import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { CuttableProxy } from '../test/support/cuttable-proxy.ts'
import { acquaint, proxiedPair } from '../test/support/proxied-pair.ts'
import { inTmux, typeLine, typeText } from '../test/support/terminal-in-tmux.ts'
import { NO_TMUX, Tmux } from '../test/support/tmux.ts'
import { until } from '../test/support/mesh-of-daemons.ts'

// Real programs in tmux, over a path that is cut for two seconds. All input during the cut arrives exactly once.

const CUT_MS = 2_000
const PASSWORD = 'correct-horse-battery'

interface Stage {
  readonly tmux: Tmux
  /** Cuts the path during the work, and waits until the run is resumed. */
  readonly whileCut: (work: () => Promise<void>) => Promise<void>
  readonly root: string
}

/** Runs a program of bob on a terminal of tmux. */
const open = async (t: TestContext, argv: (root: string) => Promise<readonly string[]>): Promise<Stage> => {
  const tmux = await Tmux.make(t)
  const stage = await proxiedPair(t, (port) => new CuttableProxy(port))
  const command = await argv(stage.mesh.root)
  await acquaint(stage, [command], '', true)
  await inTmux(tmux, stage.alice, `-t bob -- ${command.join(' ')}`)
  const resumed = async (): Promise<number> => (await stage.bob.diagnostics()).totals['runs_resumed'] ?? 0
  const whileCut = async (work: () => Promise<void>): Promise<void> => {
    const before = await resumed()
    stage.proxy.refuse()
    const cut = sleep(CUT_MS)
    await work()
    await cut
    stage.proxy.allow()
    await until('the run is resumed', async () => (await resumed()) > before)
  }
  return { tmux, whileCut, root: stage.mesh.root }
}

/** Checks that the program has ended and that the terminal has its old modes. */
const ends = async (tmux: Tmux, status = 0): Promise<void> => {
  await tmux.shows(new RegExp(`^status=${status}$`))
  await tmux.shows(/^icanon$/)
}

const withProgram = (path: string) =>
  NO_TMUX === false && existsSync(path) ? {} : { skip: NO_TMUX === false ? `there is no ${path}` : NO_TMUX }

test('a shell gets each line and resize once after a cut', { skip: NO_TMUX }, async (t) => {
  const { tmux, whileCut, root } = await open(t, async () => ['sh'])
  const file = join(root, 'lines')
  await tmux.shows(/^[#$]/)
  await typeLine(tmux, `echo one >> ${file}`)
  await until('it is written', () => existsSync(file))
  await whileCut(async () => {
    await typeLine(tmux, `echo two >> ${file}`)
    await tmux.resize(90, 20)
    await typeText(tmux, `echo three >> `)
  })
  await typeLine(tmux, file)
  await typeLine(tmux, 'stty size')
  await tmux.shows(/^20 90$/)
  assert.equal(readFileSync(file, 'utf8'), 'one\ntwo\nthree\n')
  await typeLine(tmux, 'exit 6')
  await ends(tmux, 6)
})

test('vim gets the text and keys typed during a cut once', withProgram('/usr/bin/vim'), async (t) => {
  const { tmux, whileCut, root } = await open(t, async (dir) => ['vim', '-u', 'NONE', join(dir, 'text')])
  await tmux.shows(/^~/)
  await typeText(tmux, 'ihello')
  await tmux.shows(/^hello/)
  await whileCut(async () => {
    await typeText(tmux, ' world')
    await tmux.press('Escape')
    await tmux.resize(70, 18)
  })
  await tmux.shows(/^hello world/)
  await typeLine(tmux, ':wq')
  await ends(tmux)
  assert.equal(readFileSync(join(root, 'text'), 'utf8'), 'hello world\n')
})

test('less gets the keys typed during a cut', withProgram('/usr/bin/less'), async (t) => {
  const { tmux, whileCut } = await open(t, async (dir) => {
    const lines = Array.from({ length: 500 }, (_none, at) => `line ${at + 1}`)
    await writeFile(join(dir, 'pages'), `${lines.join('\n')}\n`)
    return ['less', join(dir, 'pages')]
  })
  await tmux.shows(/^line 1$/)
  await whileCut(async () => typeText(tmux, 'jjjjj'))
  // A resize may move the text by a line.
  await until('it is five lines further', async () =>
    /^line [567]$/.test((await tmux.lines()).find((line) => line.startsWith('line ')) ?? ''),
  )
  await tmux.press('q')
  await ends(tmux)
})

test('htop follows a resize during a cut, and keys after it', withProgram('/usr/bin/htop'), async (t) => {
  const { tmux, whileCut } = await open(t, async () => ['htop'])
  await tmux.shows(/Quit/)
  await whileCut(async () => tmux.resize(100, 30))
  await until('the keys are in the last line', async () => /Quit/.test((await tmux.lines())[29] ?? ''))
  // htop loses keys that arrive with a change of the size, which also follows a reconnection.
  for (let isTree = false; !isTree;) {
    await tmux.press('t')
    const shown = tmux.shows(/F5List/).then(
      () => true,
      () => false,
    )
    isTree = await Promise.race([shown, sleep(5_000, false)])
  }
  await tmux.press('q')
  await ends(tmux)
})

test('a password typed during a cut arrives once and is not shown', withProgram('/bin/bash'), async (t) => {
  const { tmux, whileCut } = await open(t, async (dir) => {
    const path = join(dir, 'asks')
    const text = 'read -rs -p "Password: " secret; echo; echo "got $(printf %s "$secret" | sha256sum)"'
    await writeFile(path, `#!/bin/bash\n${text}\n`, { mode: 0o755 })
    return [path]
  })
  await tmux.shows(/^Password:/)
  await typeText(tmux, PASSWORD.slice(0, 5))
  await whileCut(async () => typeText(tmux, PASSWORD.slice(5, 15)))
  await typeLine(tmux, PASSWORD.slice(15))
  await tmux.shows(/^got /)
  const lines = await tmux.lines()
  assert.ok(
    lines.some((line) => line.includes(createHash('sha256').update(PASSWORD).digest('hex').slice(0, 60))),
    lines.join('\n'),
  )
  assert.ok(lines.every((line) => !line.includes('horse')))
  await ends(tmux)
})
