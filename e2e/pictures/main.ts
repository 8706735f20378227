import { randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { cleanEnvironment, MeshOfDaemons, TestDaemon, until } from '../../test/support/mesh-of-daemons.ts'
import { RecordedTerminal } from './recorded-terminal.ts'
import { ALLOWED, COLUMNS, FLEET, SCENES, type Machine, type Pane } from './scenes.ts'
import { renamed, type Cell } from './screen.ts'
import { isPrompt, terminalSvg } from './terminal-svg.ts'

/**
 * `npm run pictures [-- NAME…]` writes docs/images/terminal-*.svg from real daemons on this machine and a real terminal. Only the directory
 * that contains them has another name in the pictures.
 */

const ROOT = join(import.meta.dirname, '../..')
const IMAGES = join(ROOT, 'docs/images')
/** Both have the same length, so that printed tables keep their columns. A real home directory is not longer. */
const [HOMES, SHOWN_HOMES] = ['/tmp/pic-', '/home/people']

/** A directory with a shorter name than mkdtemp makes. */
const makeRoot = async (): Promise<string> => {
  const root = `${HOMES}${randomBytes(2).toString('hex').slice(1)}`
  await mkdir(root, { mode: 0o755 })
  return root
}

/** A machine from the view of a user: a home directory and the programs on the PATH. */
const machineEnvironment = async (root: string, name: Machine): Promise<Record<string, string>> => {
  const home = join(root, name)
  const bin = join(home, 'bin')
  await mkdir(bin, { recursive: true, mode: 0o700 })
  for (const [program, file] of [
    ['x0x', 'x0x.cjs'],
    ['x0xd', 'x0xd.mjs'],
  ] as const)
    await writeFile(join(bin, program), `#!/bin/sh\nexec '${process.execPath}' '${join(ROOT, 'dist', file)}' "$@"\n`, { mode: 0o755 })
  return { ...cleanEnvironment(), HOME: home, PATH: `${bin}:${process.env['PATH']}`, X0X_MDNS: 'false' }
}

const addDaemon = (mesh: MeshOfDaemons, name: Machine): TestDaemon => {
  const daemon = new TestDaemon(name, join(mesh.root, name, '.x0x'))
  mesh.daemons.push(daemon)
  return daemon
}

/** Bob allows alice the commands of the scenes. Charlie has bob as a contact but is not in his ACL. */
const startMesh = async (mesh: MeshOfDaemons): Promise<void> => {
  const [alice, bob, charlie] = [addDaemon(mesh, 'alice'), addDaemon(mesh, 'bob'), addDaemon(mesh, 'charlie')]
  await Promise.all([alice.start(), charlie.start()])
  await bob.writeAcl([{ agent: alice, commands: ALLOWED }])
  await bob.start()
  await Promise.all([alice.meet(bob, 'known'), charlie.meet(bob, 'known')])
  await bob.meet(alice, 'trusted')
  await bob.meet(charlie, 'known')
  await until('alice and charlie hear of each other', async () =>
    (await alice.json<{ peers: { agent_id: string }[] }>('peers')).peers.some((peer) => peer.agent_id === charlie.agentId),
  )
}

/** Each host runs `cat release` in its own directory. */
const startFleet = async (mesh: MeshOfDaemons): Promise<void> => {
  const alice = mesh.daemons.find(({ name }) => name === 'alice')!
  for (const [name, release] of FLEET) {
    const host = mesh.add(name)
    await host.writeAcl(release === '' ? [] : [{ agent: alice, commands: [['cat', 'release']] }])
    await writeFile(host.aclFile, (await readFile(host.aclFile, 'utf8')).replace('"/"', JSON.stringify(host.dir)))
    await writeFile(join(host.dir, 'release'), `${release}\n`)
    await host.start()
    await alice.meet(host, 'known')
    await host.meet(alice, 'trusted')
  }
}

const play = async ({ who, steps }: Pane, env: Record<string, string>): Promise<Cell[][]> => {
  const terminal = new RecordedTerminal({ who, env, columns: COLUMNS })
  try {
    await terminal.prompted()
    for (const { line, answers = [], until: seen } of steps) {
      const typedIn = terminal.rows().length
      terminal.type(`${line}\r`)
      for (const [question, answer] of answers) {
        await terminal.shows(question)
        terminal.type(`${answer}\r`)
      }
      await (seen === undefined ? terminal.prompted(typedIn) : terminal.shows(seen))
    }
    const rows = terminal.rows()
    terminal.type('\u0003')
    await terminal.prompted(rows.length)
    return isPrompt(rows.at(-1) ?? []) ? rows.slice(0, -1) : rows
  } finally {
    terminal.close()
  }
}

const main = async (names: readonly string[]): Promise<void> => {
  const unknown = names.find((name) => SCENES[name] === undefined)
  if (unknown !== undefined) throw new Error(`there is no picture ${unknown}; there are ${Object.keys(SCENES).join(', ')}`)
  const wanted = Object.entries(SCENES).filter(([name]) => names.length === 0 || names.includes(name))
  const mesh = new MeshOfDaemons(await makeRoot())
  try {
    if (wanted.some(([, { panes }]) => panes.some(({ who }) => who !== 'dora'))) await startMesh(mesh)
    if (wanted.some(([name]) => name === 'terminal-fleet')) await startFleet(mesh)
    for (const [name, { title, panes }] of wanted) {
      const shown = []
      for (const pane of panes) {
        const rows = await play(pane, await machineEnvironment(mesh.root, pane.who))
        shown.push({ title: panes.length > 1 ? pane.title : null, rows: renamed(rows, mesh.root, SHOWN_HOMES) })
      }
      await writeFile(join(IMAGES, `${name}.svg`), terminalSvg(title, shown, COLUMNS))
      process.stdout.write(`docs/images/${name}.svg\n`)
    }
  } finally {
    await mesh.stop()
  }
}

await main(process.argv.slice(2))
