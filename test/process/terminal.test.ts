import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { closeSync, existsSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { constants } from 'node:os'
import { join } from 'node:path'
import type { Duplex } from 'node:stream'
import { test, type TestContext } from 'node:test'

import type { Terminal, TerminalSize } from '../../src/executor-api/local.ts'
import type { Permit } from '../../src/policy/permit.ts'
import { type Child, startChild } from '../../src/process/child.ts'
import { closeInheritedDescriptors } from '../../src/process/inherited-descriptors.ts'
import { feed, findTool, launch, planLaunch } from '../../src/process/launch-plan.ts'
import { posixSpawn } from '../../src/process/posix-spawn.ts'
import type { ExitStatus } from '../../src/process/signals.ts'
import { terminalProblem } from '../../src/process/terminal.ts'
import { askRun, EVERY_GRANT, permitted, policyOf } from '../support/local-policy.ts'
import { isAlive, temporaryDirectory, until } from '../support/processes.ts'

// Every program of x0x does this when it starts.
closeInheritedDescriptors()
const native = posixSpawn()
const skip = process.platform === 'linux' ? (terminalProblem() ?? false) : 'both ways exist on Linux only'

/** Both ways to hold a terminal. Programs cannot distinguish them. */
const WAYS = [
  ['a terminal of this process', native],
  ['a terminal of a holder process', { problem: 'not wanted here' }],
] as const
type Way = (typeof WAYS)[number][1]

const hasBwrap = !('problem' in findTool('bwrap'))
const OTHER = { name: 'other', uid: 65_534, gid: 65_534, home: '/' }
const SIZE = { cols: 80, rows: 24 }

interface StartOptions {
  readonly terminal?: Terminal
  readonly stdin?: boolean
  readonly env?: Readonly<Record<string, string>>
  readonly way?: Way
}

/** A program on a terminal, with the text that it has shown. */
class OnTerminal {
  readonly child: Child
  readonly ended: Promise<ExitStatus>
  readonly resize: (size: TerminalSize) => void
  readonly #parts: Buffer[] = []
  bytes = 0

  constructor(child: Child, control: number | null) {
    const sizes = control === null ? null : feed(child, control)
    this.child = child
    this.ended = new Promise((resolve) => {
      child.onExit = resolve
    })
    this.resize = child.resize ?? (({ cols, rows }) => void sizes?.write(`${cols} ${rows}\n`))
    // A program may end before it reads its input.
    child.stdio[0]?.on('error', () => undefined)
    this.output.on('data', (part: Buffer) => {
      this.#parts.push(part)
      this.bytes += part.length
    })
  }

  get input(): Duplex {
    return this.child.stdio[0]!
  }

  get output(): Duplex {
    return this.child.stdio[1]!
  }

  get text(): string {
    return Buffer.concat(this.#parts).toString()
  }

  async shown(text: string): Promise<void> {
    while (!this.text.includes(text)) await once(this.output, 'data')
  }

  /** Returns the exit status after all output was read. */
  async over(): Promise<ExitStatus> {
    const [exit] = await Promise.all([this.ended, this.output.readableEnded || once(this.output, 'end')])
    this.close()
    return exit
  }

  close(): void {
    for (const stream of this.child.stdio) stream?.destroy()
  }
}

const permitIn = (cwd: string, argv: readonly string[], terminal: Terminal): Permit =>
  permitted(askRun(policyOf([cwd], { security: EVERY_GRANT }), { argv, terminal }, { cwd: { path: cwd, descriptor: null } }))

const startIn = async (
  cwd: string,
  argv: readonly string[],
  { terminal = SIZE, stdin = true, env = {}, way = native }: StartOptions = {},
): Promise<OnTerminal> => {
  const granted = permitIn(cwd, argv, terminal)
  const permit = { ...granted, env: { ...granted.env, ...env } }
  const plan = planLaunch(permit, false, true, way)
  assert.ok(!('problem' in plan))
  assert.equal(plan.control === null, way === native)
  return new OnTerminal(await launch(plan, permit, { stdin, mark: null }), plan.control)
}

const start = async (t: TestContext, script: string, options: StartOptions & { cwd?: string } = {}): Promise<OnTerminal> =>
  startIn(options.cwd ?? (await temporaryDirectory(t)), ['sh', '-c', script], options)

const run = async (t: TestContext, script: string, options: StartOptions = {}, input = ''): Promise<{ exit: ExitStatus; text: string }> => {
  const running = await start(t, script, options)
  if (options.stdin !== false) running.input.end(input)
  const exit = await running.over()
  return { exit, text: running.text }
}

const descriptors = (): string[] => readdirSync('/proc/self/fd')
const lines = (text: string): string[] => text.split('\r\n')

for (const [name, way] of WAYS) {
  const each = (title: string, body: (t: TestContext) => Promise<void>): void => void test(`with ${name}, ${title}`, { skip }, body)

  each('a program is in the foreground of its terminal, which has its size and is /dev/tty', async (t) => {
    const terminal = { cols: 100, rows: 30 }
    const { exit, text } = await run(t, 'tty; stty size; ps -o sid=,tpgid= $$ | tr -s " "; echo $$; echo same > /dev/tty', {
      way,
      terminal,
    })
    const [path, size, ids = '', pid, same] = lines(text)
    assert.match(path ?? '', /^\/dev\/pts\/\d+$/)
    assert.deepEqual([size, ids.trim(), same], ['30 100', `${pid} ${pid}`, 'same'])
    assert.deepEqual(exit, { code: 0, signal: null })
  })

  each('lines are edited, echoed and completed as on any terminal', async (t) => {
    const { text } = await run(t, 'stty -a | tr ";" "\\n"; exec cat', { way }, 'wrox\u007fng\u0015rigät\u007f\u007fht\n')
    const words = text.split(/[\n\r ]+/)
    for (const mode of ['icanon', 'isig', 'echo', 'icrnl', 'ixon', 'iutf8', 'opost', 'onlcr', 'iexten', '^C', '^D', '^?'])
      assert.ok(words.includes(mode), `${mode} is not in ${text}`)
    assert.ok(text.endsWith('\r\nright\r\n'), text)
  })

  each('Ctrl-C ends the program with SIGINT', async (t) => {
    const running = await start(t, 'echo ready; exec cat', { way })
    await running.shown('ready')
    running.input.write('\u0003')
    assert.deepEqual(await running.over(), { code: null, signal: constants.signals.SIGINT })
  })

  each('a raw terminal carries output and /dev/tty unchanged, and input is a pipe', async (t) => {
    const terminal = { ...SIZE, raw: true }
    const script = 'stty size < /dev/tty; test -t 0 || test -t 1 && test -t 2 && echo yes; cat; echo "$NODE_OPTIONS" > /dev/tty'
    const { exit, text } = await run(t, script, { way, terminal, env: { NODE_OPTIONS: '--nonsense' } }, 'a\u0004b\r\n\u0003')
    assert.equal(text, '24 80\nyes\na\u0004b\r\n\u0003--nonsense\n')
    assert.deepEqual(exit, { code: 0, signal: null })
  })

  each('the end of input is typed, also after an incomplete line and without any input', async (t) => {
    for (const input of ['abc', 'abc\n', '']) {
      const { exit, text } = await run(t, 'stty -echo; exec cat', { way }, input)
      assert.deepEqual([exit.code, text.replaceAll('abc', '').trim()], [0, ''])
    }
    for (const raw of [false, true]) assert.equal((await run(t, 'cat', { way, stdin: false, terminal: { ...SIZE, raw } })).exit.code, 0)
  })

  each('a program receives new sizes, and the last of 10,000 remains', async (t) => {
    const running = await start(t, 'trap "stty size" WINCH; echo ready; while :; do read line && break; done; stty size; exit 6', { way })
    await running.shown('ready')
    running.resize({ cols: 50, rows: 20 })
    await running.shown('20 50')
    for (let cols = 1; cols <= 10_000; cols++) running.resize({ cols, rows: 77 })
    await running.shown('77 10000')
    running.input.write('over\n')
    assert.deepEqual(await running.over(), { code: 6, signal: null })
    running.resize(SIZE)
  })

  each('exit codes and signals are exact', async (t) => {
    for (const code of [0, 1, 126, 127, 255]) assert.deepEqual((await run(t, `exit ${code}`, { way })).exit, { code, signal: null })
    for (const signal of ['SIGHUP', 'SIGTERM', 'SIGKILL', 'SIGUSR2'] as const) {
      const { exit } = await run(t, `kill -${signal.slice(3)} $$`, { way })
      assert.deepEqual(exit, { code: null, signal: constants.signals[signal] })
    }
  })

  each('all output of a program arrives, including its last bytes', async (t) => {
    const expected = Array.from({ length: 20_000 }, (_one, at) => `${at + 1}\r\n`).join('')
    const outputs = await Promise.all(Array.from({ length: 4 }, async () => (await run(t, 'exec seq 20000', { way })).text))
    for (const text of outputs) assert.ok(text === expected)
  })

  each('a program that closes its streams before its end keeps its terminal', async (t) => {
    const cwd = await temporaryDirectory(t)
    const script = 'exec < /dev/null > /dev/null 2>&1; : > closed; until [ -e go ]; do sleep 0.01; done; echo late > /dev/tty; exit 4'
    const running = await start(t, script, { way, cwd })
    await until(() => existsSync(join(cwd, 'closed')))
    await writeFile(join(cwd, 'go'), '')
    assert.deepEqual(await running.over(), { code: 4, signal: null })
    assert.equal(running.text, 'late\r\n')
  })

  each('10 MiB of input to a program that does not read delay no other program and arrive complete', async (t) => {
    const cwd = await temporaryDirectory(t)
    const paste = Buffer.concat(
      Array.from({ length: 160 }, (_one, at) => createHash('shake256', { outputLength: 65_536 }).update(`${at}`).digest()),
    )
    const script = `stty raw -echo; echo ready; until [ -e go ]; do sleep 0.01; done; head -c ${paste.length} | sha256sum`
    const running = await start(t, script, { way, cwd })
    await running.shown('ready')
    let isTyped = false
    running.input.write(paste, () => (isTyped = true))
    assert.equal((await run(t, 'echo another', { way })).exit.code, 0)
    assert.equal(isTyped, false)
    await writeFile(join(cwd, 'go'), '')
    assert.deepEqual(await running.over(), { code: 0, signal: null })
    assert.ok(running.text.includes(createHash('sha256').update(paste).digest('hex')))
  })

  each('a descendant that keeps the terminal does not delay the end of the output', async (t) => {
    const cwd = await temporaryDirectory(t)
    const script = 'setsid sh -c \'echo "pid $$"; : > held; exec sleep 1000\' & until [ -e held ]; do sleep 0.01; done; exit 3'
    const running = await start(t, script, { way, cwd })
    assert.deepEqual(await running.over(), { code: 3, signal: null })
    const pid = Number(/pid (\d+)/.exec(running.text)?.[1])
    assert.ok(isAlive(pid))
    process.kill(pid, 'SIGKILL')
  })
}

const here = (title: string, body: (t: TestContext) => Promise<void>): void => void test(title, { skip }, body)

here('no other process holds the terminal of a program', async (t) => {
  const running = await start(t, 'echo "$$ $PPID."; exec cat')
  await running.shown('.')
  assert.equal(running.text, `${running.child.pid} ${process.pid}.\r\n`)
  running.input.end()
  await running.over()
})

here('a program of another user, or in a namespace, has a holder process for its terminal', async (t) => {
  const permit = permitIn(await temporaryDirectory(t), ['true'], SIZE)
  const plans = [
    planLaunch(permit, false),
    planLaunch({ ...permit, account: OTHER }, false),
    ...(hasBwrap ? [planLaunch(permit, true)] : []),
  ]
  const held = plans.map((plan) => 'problem' in plan || [plan.ownTerminal, plan.control])
  assert.deepEqual(held, [[SIZE, null], [null, 3], ...(hasBwrap ? [[null, 4]] : [])])
})

here('a program has its terminal and no other descriptors of this process', async (t) => {
  // Open and closed numbers in the range that the program gets.
  const held = Array.from({ length: 12 }, () => openSync('/dev/null', 'r'))
  for (const fd of held.filter((_fd, at) => at % 2 === 0)) closeSync(fd)
  try {
    const other = await start(t, 'exec cat')
    const { text } = await run(t, 'tty; ls -l /proc/self/fd')
    const [path, ...rest] = lines(text)
    const named = rest.filter((line) => line.includes(' -> ') && !line.includes('/proc/')).map((line) => line.split(' -> ')[1])
    assert.deepEqual(named, [path, path, path])
    other.input.end()
    await other.over()
  } finally {
    for (const fd of held.filter((_fd, at) => at % 2 === 1)) closeSync(fd)
  }
})

here('a failed start leaves no descriptor open', async (t) => {
  const cwd = await temporaryDirectory(t)
  const before = descriptors()
  const init = { file: join(cwd, 'missing'), argv: ['x'], env: {}, cwd, descriptors: 3, stdin: true, account: null }
  for (const raw of [false, true])
    for (const more of [{}, { file: '/bin/sh', cwd: '/nowhere' }, { argv: ['\0'] }])
      await assert.rejects(async () => startChild({ ...init, ...more, terminal: { ...SIZE, raw } }))
  assert.deepEqual(descriptors(), before)
})

here('50 simultaneous programs on terminals have their own exit status, and leave no descriptor', async (t) => {
  await run(t, 'true')
  const before = descriptors().length
  const texts = await Promise.all(
    Array.from({ length: 50 }, async (_one, at) => {
      const { exit, text } = await run(t, `echo ${at}; exit ${at}`, { terminal: { ...SIZE, raw: at % 2 === 0 } })
      assert.equal(exit.code, at)
      return text.includes(String(at))
    }),
  )
  assert.ok(texts.every(Boolean))
  assert.ok(descriptors().length <= before, `${descriptors().length} descriptors, ${before} before`)
})

here('a program gets SIGHUP when its terminal is closed', async (t) => {
  const running = await start(t, 'echo ready; exec cat')
  await running.shown('ready')
  running.close()
  assert.deepEqual(await running.ended, { code: null, signal: constants.signals.SIGHUP })
  running.resize(SIZE)
})

here('input after the end of a program is dropped without an error', async (t) => {
  const running = await start(t, 'exit 0')
  await running.ended
  await new Promise<void>((resolve) => running.input.write('x'.repeat(1_000_000), () => resolve()))
  assert.deepEqual(await running.over(), { code: 0, signal: null })
})

here('a program with endless output waits for a slow reader', async (t) => {
  const running = await start(t, 'echo ready; exec yes')
  await running.shown('ready')
  const { output, child } = running
  output.pause()
  const isAsleep = (): boolean => /^\d+ \(yes\) S/.test(readFileSync(`/proc/${child.pid}/stat`, 'latin1'))
  for (let round = 0; round < 5; round++) {
    await until(isAsleep)
    const { bytes } = running
    assert.ok(output.readableLength <= 256 * 1024, `${output.readableLength} bytes wait`)
    output.resume()
    while (running.bytes < bytes + 500_000) await once(output, 'data')
    output.pause()
  }
  running.close()
  const { signal } = await running.ended
  assert.ok(signal === constants.signals.SIGHUP || signal === null)
})
