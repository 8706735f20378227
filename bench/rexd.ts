import { spawn } from 'node:child_process'
import { createHash, randomFillSync } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'

import { rexdPlace, startRexd, type RexdPlace } from '../test/support/rexd-server.ts'
import { throughput } from './bulk.ts'
import type { SshPath } from './openssh.ts'
import { TRUE } from './pair.ts'
import { spawnTrue } from './processes.ts'
import { sustained } from './rate.ts'
import type { Row, Section } from './report.ts'
import { RexdCaller } from './rexd-caller.ts'
import { farRow } from './rexd-far.ts'
import type { Plan, Stage } from './stage.ts'
import { interleaved } from './stats.ts'

const REXD = fileURLToPath(new URL('../dist/rexd.mjs', import.meta.url))
const MiB = 1024 * 1024
/** Maximum size of one answer, and the number of concurrent requests. */
const CHUNK = 2 * MiB
const CHUNKS_AT_ONCE = 8
const FILES_AT_ONCE = 32
const READS = { full: 5, quick: 3 }
const SETS = { full: 20, quick: 3 }
const FILES = { full: 1_000, quick: 200 }

interface Callers {
  /** A local `rexd --stdio`. */
  readonly direct: RexdCaller
  /** A `rexd --stdio` started by `ssh -T` over an open master connection, as users start it on another machine. */
  readonly overSsh: RexdCaller
  /** `rexd --http` with and without compression. */
  readonly socket: RexdCaller
  readonly plainSocket: RexdCaller
  /** The same with files as bytes. */
  readonly byteSocket: RexdCaller
}

type Ending = Parameters<typeof rexdPlace>[0]
type Program = { readonly stdin: Writable; readonly stdout: Readable }

/** Starts three servers, because two servers must not share an audit log, and clients for them. All see the files. */
const openCallers = async (t: Ending, ssh: SshPath, files: string): Promise<Callers> => {
  const settings = {
    limits: `max_file_read_bytes = ${CHUNK}`,
    security: `[[security.allowed_roots]]\npath = ${JSON.stringify(files)}`,
  }
  const overLines = async (start: (argv: readonly string[]) => Program): Promise<RexdCaller> => {
    const { config, ending }: RexdPlace = await rexdPlace(t, settings)
    const program = start([process.execPath, REXD, '--stdio', '--config', config])
    ending.push(async () => {
      const closed = once(program.stdout, 'close')
      program.stdin.end()
      await closed
    })
    return RexdCaller.overLines(program)
  }
  const server = await startRexd(t, settings)
  return {
    direct: await overLines(([file = '', ...argv]) => spawn(file, argv, { stdio: ['pipe', 'pipe', 'inherit'] })),
    overSsh: await overLines((argv) => ssh.open(argv)),
    socket: await RexdCaller.overWebSocket(server, { compressed: true }),
    plainSocket: await RexdCaller.overWebSocket(server, { compressed: false }),
    byteSocket: await RexdCaller.overWebSocket(server, { compressed: true, bytes: true }),
  }
}

/** A shell on the target that waits for commands. It reports the end of each. */
const heldShell = ({ after }: Stage, ssh: SshPath): ((command: string) => Promise<void>) => {
  const shell = ssh.open(['sh'])
  after(async () => {
    shell.stdin.end()
    await once(shell, 'close')
  })
  return async (command) => {
    const said = once(shell.stdout, 'data')
    shell.stdin.write(`${command}; echo\n`)
    await said
  }
}

const latencyRows = async (stage: Stage, ssh: SshPath, { direct, overSsh, socket }: Callers): Promise<Row[]> => {
  const shell = heldShell(stage, ssh)
  const results = await interleaved(stage.plan.rounds, {
    overSsh: async () => overSsh.run(TRUE),
    master: async () => ssh.master(TRUE),
    socket: async () => socket.run(TRUE),
    client: async () => ssh.clientAlone(),
    direct: async () => direct.run(TRUE),
    shell: async () => shell(TRUE.join(' ')),
    spawned: spawnTrue,
  })
  const what = '`exec.start` of `/bin/true` until `exec.exit`'
  const common = { unit: 'ms', theirs: results.master, peer: 'ssh ControlMaster, a client process for each' } as const
  const alone = { limit: results.spawned, limitOf: '`/bin/true` started by Node.js' }
  return [
    {
      what: `${what}, through \`ssh -T\``,
      ours: results.overSsh,
      ...common,
      limit: results.shell,
      limitOf: 'a shell that stays open over ssh',
    },
    { what: `${what}, WebSocket`, ours: results.socket, ...common, ...alone, target: '≤ 0.6 × before' },
    { what: `${what}, \`rexd --stdio\` started here`, ours: results.direct, ...common, ...alone },
    {
      what: `${what}, through \`ssh -T\`, compared with an ssh client alone`,
      unit: 'ms',
      ours: results.overSsh,
      theirs: results.client,
      peer: '`ssh -O check`',
    },
  ]
}

/** Reads a file in concurrent pieces, and decodes each into its place in `target`. */
const readInto = async (caller: RexdCaller, path: string, target: Buffer): Promise<void> => {
  let next = 0
  await sustained(Math.ceil(target.length / CHUNK), CHUNKS_AT_ONCE, async () => {
    const offset = next
    next += CHUNK
    await caller.readTo(target, { path, offset, length: CHUNK })
  })
}

const sha256 = (data: Buffer): string => createHash('sha256').update(data).digest('hex')

const throughputRows = async (ssh: SshPath, callers: Callers, dir: string, { bytes, mode }: Plan): Promise<Row[]> => {
  const path = join(dir, 'large')
  const target = Buffer.alloc(bytes)
  const wanted = sha256(randomFillSync(target))
  await writeFile(path, target)
  const batch = join(dir, 'large.sftp')
  await writeFile(batch, `get ${path} /dev/null\n`)
  const { overSsh, socket, plainSocket, byteSocket } = callers
  for (const caller of [overSsh, socket, plainSocket, byteSocket]) {
    await readInto(caller, path, target.fill(0))
    if (sha256(target) !== wanted) throw new Error('what was read is not what was written')
  }
  const results = await throughput(bytes, READS[mode], {
    overSsh: async () => readInto(overSsh, path, target),
    sftp: async () => ssh.sftp(batch),
    plainSocket: async () => readInto(plainSocket, path, target),
    cat: async () => ssh.drain(['cat', path]),
    byteSocket: async () => readInto(byteSocket, path, target),
    socket: async () => readInto(socket, path, target),
  })
  const chunks = `${CHUNK / MiB} MiB each, ${CHUNKS_AT_ONCE} at once`
  const what = `\`fs.read\` of ${bytes / MiB} MiB in base64, ${chunks}`
  const common = { unit: 'MB/s', theirs: results.sftp, peer: '`sftp`, to /dev/null' } as const
  return [
    { what: `${what}, through \`ssh -T\``, ours: results.overSsh, ...common, limit: results.cat, limitOf: '`cat` over ssh' },
    { what: `${what}, WebSocket`, ours: results.socket, ...common },
    { what: `\`fs.read\` of ${bytes / MiB} MiB as bytes, ${chunks}, WebSocket`, ours: results.byteSocket, ...common, target: '≥ 0.7' },
    { what: `${what}, WebSocket without permessage-deflate`, ours: results.plainSocket, ...common },
  ]
}

/** Writes files of text between 1 and 4 KiB, like source code. */
const writeFiles = async (dir: string, count: number): Promise<{ path: string; text: string }[]> => {
  await mkdir(dir)
  const line = 'What is read is looked at: each file begins with its own number, and is as long as it should be.\n'
  const files = Array.from({ length: count }, (_, index) => {
    const size = 1_024 + ((index * 997) % 3_073)
    return { path: join(dir, `file-${index}`), text: `${index}\n${line.repeat(50)}`.slice(0, size) }
  })
  for (const { path, text } of files) await writeFile(path, text)
  return files
}

const smallRows = async (ssh: SshPath, { overSsh, socket }: Callers, dir: string, { mode }: Plan): Promise<Row[]> => {
  const small = join(dir, 'small')
  const files = await writeFiles(small, FILES[mode])
  const batch = join(dir, 'small.sftp')
  await writeFile(batch, files.map(({ path }) => `get ${path} /dev/null\n`).join(''))
  const readAll = async (caller: RexdCaller): Promise<void> => {
    const left = files.values()
    await sustained(files.length, FILES_AT_ONCE, async () => {
      const { path, text } = left.next().value!
      if ((await caller.read({ path, encoding: 'utf8' })) !== text) throw new Error(`${path} was read otherwise than it was written`)
    })
  }
  const results = await interleaved(SETS[mode], {
    overSsh: async () => readAll(overSsh),
    sftp: async () => ssh.sftp(batch),
    socket: async () => readAll(socket),
    cat: async () => ssh.drain(['cat', `${small}/*`]),
    tar: async () => ssh.drain(['tar', '-cf', '-', '-C', small, '.']),
  })
  const what = `\`fs.read\` of ${files.length} files of 1–4 KiB, ${FILES_AT_ONCE} at once`
  const sftp = { unit: 'ms', theirs: results.sftp, peer: '`sftp`, a batch of `get`s to /dev/null' } as const
  const limit = { limit: results.cat, limitOf: 'one `cat` of all over ssh' }
  return [
    { what: `${what}, through \`ssh -T\``, ours: results.overSsh, ...sftp, ...limit },
    { what: `${what}, WebSocket`, ours: results.socket, ...sftp, ...limit },
    {
      what: `${what}, through \`ssh -T\`, compared with one program that reads all`,
      unit: 'ms',
      ours: results.overSsh,
      theirs: results.tar,
      peer: '`ssh … tar -c`',
    },
  ]
}

/** Compares REXD commands and files with ssh and sftp. */
export const rexd = async (stage: Stage): Promise<Omit<Section, 'title'>> => {
  const sshd = await stage.openSsh()
  const ssh = sshd.direct
  const t: Ending = { after: (ending: unknown) => stage.after(ending as () => Promise<void>) }
  const { root: files } = await rexdPlace(t)
  const callers = await openCallers(t, ssh, files)
  const rows = [
    ...(await latencyRows(stage, ssh, callers)),
    ...(await throughputRows(ssh, callers, files, stage.plan)),
    await farRow(t, sshd, stage.plan),
    ...(await smallRows(ssh, callers, files, stage.plan)),
  ]
  const intro =
    'All connections are open before the measurement. Each call of ssh and sftp starts a client process that uses an open master connection. WebSockets use permessage-deflate. `rexd` writes its audit log. The client parses JSON and decodes base64 on the same cores.'
  return { intro, rows }
}
