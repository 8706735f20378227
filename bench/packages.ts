import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { DEBIAN } from '../deploy/packages/deb.mjs'
import { OUT } from '../deploy/packages/place.mjs'
import { packageRoot } from '../deploy/runtime.mjs'
import { rexdPlace } from '../test/support/rexd-server.ts'
import { launch } from './launcher.ts'
import { startPair, TRUE } from './pair.ts'
import { RexdCaller } from './rexd-caller.ts'
import type { Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved } from './stats.ts'

const ROUNDS = { full: 12, quick: 2 }
const ARCHITECTURE = DEBIAN[process.arch as keyof typeof DEBIAN]

const INTRO =
  '`/bin/true`, from the start of `x0xd`, with existing keys and contacts, to the end of the first `x0x exec` on a running peer. For `rexd --stdio` on this machine, from its start to `exec.exit`. All files are in the page cache.'

const run = promisify(execFile)
/** A program and the arguments that start it. */
type Program = readonly [string, ...string[]]

/** A package that `npm run packages` has made. */
export const packaged = (name: string): string => {
  const file = join(OUT, name)
  if (!existsSync(file)) throw new Error(`${file} is missing: npm run packages`)
  return file
}

/** The script that npm links into a directory of programs. */
const npmProgram = (script: string): Program => [process.execPath, join(packageRoot, 'deploy', 'bin', script)]

/** Unpacks the Debian package into a directory, and adapts the paths in its scripts. */
const unpacked = async (dir: string): Promise<(name: string) => Program> => {
  const deb = readdirSync(packaged('.')).find((name) => name.endsWith(`_${ARCHITECTURE}.deb`)) ?? `x0x_VERSION_${ARCHITECTURE}.deb`
  await run('dpkg-deb', ['--extract', packaged(deb), dir])
  const script = (name: string): string => join(dir, 'usr', 'bin', name)
  for (const path of ['x0x', 'x0xd'].map(script)) {
    const text = await readFile(path, 'utf8')
    await writeFile(path, text.replaceAll(' /usr/lib/', ` ${dir}/usr/lib/`))
  }
  return (name) => [script(name)]
}

/** Measures from the start of a daemon with existing data to the end of its first command. */
export const packages = async (stage: Stage): Promise<Omit<Section, 'title'>> => {
  const { mesh, openSsh, plan, after } = stage
  const ssh = (await openSsh()).direct
  const { alice, client } = await startPair(mesh)
  client.close()
  await alice.stop()
  const { config } = await rexdPlace({ after: (ending: unknown) => after(ending as () => Promise<void>) })
  const debProgram = await unpacked(join(mesh.root, 'deb'))
  const endings: (() => Promise<unknown>)[] = []
  const endAll = async (): Promise<void> => {
    for (const end of endings.splice(0)) await end()
  }
  after(endAll)
  const onMesh = (daemon: Program, [file, ...words]: Program): (() => Promise<unknown>) => {
    const same = mesh.add(alice.name, { program: daemon })
    return async () => {
      endings.push(async () => same.stop())
      await same.start()
      return launch(file, [...words, '--data-dir', same.dir, 'exec', 'bob', '--', ...TRUE])
    }
  }
  const onStdio =
    ([file, ...words]: Program): (() => Promise<unknown>) =>
    async () => {
      const server = spawn(file, [...words, '--stdio', '--config', config], { stdio: ['pipe', 'pipe', 'inherit'] })
      const closed = once(server, 'close')
      endings.push(async () => {
        server.stdin.end()
        await closed
      })
      return (await RexdCaller.overLines(server)).run(TRUE)
    }
  const npmDaemon = npmProgram('x0xd.mjs')
  const took = await interleaved(
    ROUNDS[plan.mode],
    {
      npm: onMesh(npmDaemon, npmProgram('x0x.cjs')),
      oneFile: onMesh(npmDaemon, [packaged(`x0x-linux-${process.arch}`)]),
      deb: onMesh(debProgram('x0xd'), debProgram('x0x')),
      rexd: onStdio(npmProgram('rexd.mjs')),
      oneFileRexd: onStdio([packaged(`rexd-linux-${process.arch}`)]),
      cold: async () => ssh.cold(TRUE),
    },
    endAll,
  )
  const besideNpm = { unit: 'ms', theirs: took.npm, peer: 'npm package' } as const
  return {
    intro: INTRO,
    rows: [
      { what: 'npm package', unit: 'ms', ours: took.npm, theirs: took.cold, peer: 'a new ssh connection' },
      { what: '`x0x` as a single file, with the daemon of the npm package', ours: took.oneFile, ...besideNpm },
      { what: 'Debian package', ours: took.deb, ...besideNpm },
      {
        what: '`rexd --stdio` as a single file',
        unit: 'ms',
        ours: took.oneFileRexd,
        theirs: took.rexd,
        peer: '`rexd --stdio` of the npm package',
      },
    ],
  }
}
