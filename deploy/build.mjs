// Bundles the command line and the daemon into dist/. Runs on any Node >= 20.
import { chmod, mkdir, mkdtemp, readdir, readFile, realpath, rename, rm, writeFile } from 'node:fs/promises'
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'

import { buildPage } from './build-page.mjs'
import { CACHES, noteBuild, noted } from './built.mjs'
import { licences, packagesIn } from './licences.mjs'
import { FUNCTION, SMALL_YOUNG_GENERATION, STANDALONE } from './compiled-script.mjs'
import { findRuntime, packageRoot } from './runtime.mjs'
import { LATER_BUILTINS } from './later-builtins.mjs'

/** To use a program a few times, on a machine that does much else. */
const CACHE_MS = 300_000
const SHEBANG = '#!/usr/bin/env node\n'
/** The bundled CommonJS packages expect these three, which ES modules lack. */
const REQUIRE_PRELUDE = [
  "import { createRequire as __createRequire } from 'node:module'",
  'const require = __createRequire(import.meta.url)',
].join('\n')
const ESM_PRELUDE = [REQUIRE_PRELUDE, 'const __filename = import.meta.filename, __dirname = import.meta.dirname'].join('\n')

const DAEMON_PRELUDE = `${ESM_PRELUDE}
import { setFlagsFromString as __setFlags } from 'node:v8'
__setFlags('${SMALL_YOUNG_GENERATION}')`

/** All that was written is flushed by then; to wait for the runtime to tidy up takes two milliseconds, and input may be a pipe that nobody closes. */
const AT_ONCE = 'process.exit(status)'
/** Of what lives long, under the runtime that the package brings along. */
const PROGRAM = { format: 'esm', target: 'node24', banner: DAEMON_PRELUDE, supported: { 'dynamic-import': true } }
/** Of what is started for every command, on whatever Node there is, and of what such a one loads where it needs more. */
const LOADED = { format: 'cjs', target: 'node20', banner: LATER_BUILTINS, supported: { 'dynamic-import': false } }
/** A function, which a loader compiles with a cache, see compiled-script.mjs. */
const SCRIPT = {
  format: 'cjs',
  target: 'node24',
  banner: FUNCTION.head,
  footer: FUNCTION.tail,
  supported: { 'dynamic-import': false },
  define: { 'import.meta.url': '__url' },
  isScript: true,
}
/** Loads such a function. */
const LOADER = { ...PROGRAM, entry: 'deploy/start-program.mjs', banner: SHEBANG, supported: {} }
const COMMAND = { ...LOADED, banner: SHEBANG, end: AT_ONCE }

export const TARGETS = {
  x0x: { ...COMMAND, entry: 'src/programs/x0x/main.ts', out: 'dist/x0x.cjs' },
  // All commands but a plain exec.
  'x0x-other-commands': { ...LOADED, entry: 'src/programs/x0x/other-commands.ts', out: 'dist/x0x-other-commands.cjs' },
  x0xd: { ...LOADER, out: 'dist/x0xd.mjs' },
  'x0xd-script': { ...SCRIPT, entry: 'src/programs/x0xd/main.ts', out: 'dist/x0xd.cjs' },
  'x0xd-network': {
    ...SCRIPT,
    entry: 'src/programs/x0xd-network/main.ts',
    out: 'dist/x0xd-network.mjs',
    banner: `${STANDALONE.head}${FUNCTION.head}`,
    footer: `${FUNCTION.tail}${STANDALONE.tail}`,
    opensPipes: true,
  },
  // Standard input of the network process where the executor process starts it.
  'x0xd-network-start': { ...PROGRAM, entry: 'deploy/start-network.mjs', out: 'dist/x0xd-network-start.mjs', banner: '' },
  rexd: { ...LOADER, out: 'dist/rexd.mjs' },
  'rexd-script': { ...SCRIPT, entry: 'src/programs/rexd/main.ts', out: 'dist/rexd.cjs' },
  'x0x-mcp': { ...PROGRAM, entry: 'src/programs/mcp/main.ts', out: 'dist/x0x-mcp.mjs', end: AT_ONCE },
  // Serves the page, whose files are in dist/page.
  'x0x-ui': { ...PROGRAM, entry: 'src/programs/ui/main.ts', out: 'dist/x0x-ui.mjs', end: AT_ONCE },
  // Holds what a human must allow, where no daemon does.
  'x0x-desk': { ...PROGRAM, entry: 'src/programs/desk/main.ts', out: 'dist/x0x-desk.mjs', end: AT_ONCE },
  // Examines an installation for whoever helps.
  'x0x-bundle': { ...PROGRAM, entry: 'src/programs/bundle/main.ts', out: 'dist/x0x-bundle.mjs', end: AT_ONCE },
  // The host of a console.
  console: { ...PROGRAM, entry: 'src/programs/console/main.ts', out: 'dist/console.mjs', end: AT_ONCE },
  // Its tools for agents, which load the Model Context Protocol.
  'rexec-mcp': { ...PROGRAM, entry: 'src/programs/rexec-mcp/main.ts', out: 'dist/rexec-mcp.mjs', end: AT_ONCE },
  // Its client.
  rexec: { ...COMMAND, entry: 'src/programs/rexec/main.ts', out: 'dist/rexec.cjs' },
  // All that runs no command.
  'rexec-maintenance-commands': {
    ...LOADED,
    entry: 'src/programs/rexec/maintenance-commands.ts',
    out: 'dist/rexec-maintenance-commands.cjs',
  },
  // Where colours of a command are wanted.
  'rexec-colours': { ...LOADED, entry: 'src/doors/console/render-entry.ts', out: 'dist/rexec-colours.cjs' },
  // What programs import as x0x/client.
  client: {
    entry: 'src/sdk/entry.ts',
    out: 'dist/client.mjs',
    format: 'esm',
    target: 'node20',
    banner: REQUIRE_PRELUDE,
    supported: {},
    // An error that nobody catches is printed with the line that it stands in.
    readable: true,
  },
  // Started for each program that runs on a terminal. CommonJS: as an ES module it takes a tenth more to run one that does nothing.
  'terminal-host': {
    entry: 'src/process/terminal-main.ts',
    out: 'dist/terminal-host.cjs',
    format: 'cjs',
    target: 'node24',
    banner: '',
    supported: { 'dynamic-import': true },
    define: { 'import.meta.url': '__filename' },
    end: AT_ONCE,
  },
}

/** Files that have a bundle of their own. */
const APART = {
  'other-commands.ts': 'x0x-other-commands',
  'maintenance-commands.ts': 'rexec-maintenance-commands',
  'render-entry.ts': 'rexec-colours',
}

/** An import of such a file becomes one of its bundle. */
const apart = {
  name: 'apart',
  setup: ({ onResolve }) =>
    onResolve({ filter: /\.ts$/ }, ({ kind, path }) => {
      const bundle = kind === 'dynamic-import' ? APART[basename(path)] : undefined
      return bundle === undefined ? null : { path: `./${basename(TARGETS[bundle].out)}`, external: true }
    }),
}

const BUILTIN_IMPORT = /^import \{([^}]+)\} from '(node:[^']+)'$/gm

const required = (_line, names, builtin) => {
  const values = names
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '' && !name.startsWith('type '))
  return `const { ${values.map((name) => name.replace(' as ', ': ')).join(', ')} } = require('${builtin}')`
}

/** What a module imports of the runtime is loaded with that module: the head of the bundle would load it for all, whatever is asked. */
const builtins = {
  name: 'builtins',
  setup: ({ onLoad }) =>
    onLoad({ filter: /\/src\/.*\.ts$/ }, async ({ path }) => ({
      loader: 'ts',
      contents: (await readFile(path, 'utf8')).replace(BUILTIN_IMPORT, required),
    })),
}

/**
 * What fastify loads only where nobody gives it something else, and we do: compilers of JSON Schema, and a client for tests. Its servers of
 * HTTPS and HTTP/2, which no program of ours asks it for.
 * What pino loads for those who write by a thread of their own. What the library of the Model Context Protocol evaluates schemas of
 * others with, which it would only ask for by a question to a person.
 */
const leftOut = {
  name: 'left-out',
  setup: ({ onResolve, onLoad }) => {
    onResolve({ filter: /^(@fastify\/(ajv|fast-json-stringify)-compiler|light-my-request)$/ }, ({ path }) => ({
      path,
      namespace: 'left-out',
    }))
    onResolve({ filter: /^node:http(s|2)$/ }, ({ path, importer }) =>
      /node_modules\/fastify\//.test(importer) ? { path, namespace: 'left-out' } : null,
    )
    onResolve({ filter: /^\.\/(lib\/)?transport$/ }, ({ path, importer }) =>
      /node_modules\/pino\//.test(importer) ? { path, namespace: 'left-out' } : null,
    )
    onResolve({ filter: /^\.\/ajvProvider-.*\.mjs$/ }, ({ path }) => ({ path, namespace: 'left-out' }))
    onLoad({ filter: /.*/, namespace: 'left-out' }, () => ({ contents: '' }))
  },
}

/** Modules that open standard streams as soon as a program imports them: of `process` and `util` an import reads every property. */
const OPENS_STREAMS = /^(node:)?(process|util|assert)$/

/** Such a module by a call instead of an import, so that `useOwnPipes` comes first. */
const noStreams = {
  name: 'no-streams',
  setup: ({ onResolve, onLoad }) => {
    onResolve({ filter: OPENS_STREAMS }, ({ path }) => ({ path, namespace: 'no-streams' }))
    onLoad({ filter: /.*/, namespace: 'no-streams' }, ({ path }) => ({
      contents: `module.exports = globalThis.process.getBuiltinModule('${path}')`,
    }))
  },
}

/** What a program does before all else, so that even what its modules do when they are loaded comes later. */
const ownPipes = {
  name: 'own-pipes',
  setup: ({ onResolve, onLoad }) => {
    onResolve({ filter: /^own-pipes$/ }, ({ path }) => ({ path, namespace: 'own-pipes' }))
    onLoad({ filter: /.*/, namespace: 'own-pipes' }, () => ({
      contents: "import { useOwnPipes } from './src/base/own-pipes.ts'\nuseOwnPipes()",
      resolveDir: packageRoot,
    }))
  },
}

/**
 * A main module exports `main(argv, env)` and does nothing when imported: this is who calls it. It ends when
 * nothing is left to do, unless `end` says otherwise.
 */
const starter = (entry, end) => `
import 'own-pipes'
import { main } from './${entry}'
main(process.argv.slice(2), process.env).then(
  (status) => { ${end} },
  (error) => { console.error(error); process.exitCode = 70 },
)`

/** A bundle that another one loads. */
const library = (entry) => `export * from './${entry}'`

/** Builds one target in memory; answers its text and esbuild's account of what went in. */
export const bundle = async ({
  entry,
  format,
  target,
  banner,
  supported,
  footer = '',
  isScript = false,
  opensPipes = false,
  readable = false,
  define = {},
  plugins = [],
  end = 'process.exitCode = status',
}) => {
  const { build } = await import('esbuild')
  const contents =
    entry.endsWith('main.ts') && !isScript ? starter(entry, end) : `${opensPipes ? "import 'own-pipes'\n" : ''}${library(entry)}`
  const result = await build({
    stdin: { contents, resolveDir: packageRoot, sourcefile: 'start.js' },
    absWorkingDir: packageRoot,
    bundle: true,
    plugins: [
      ...plugins,
      apart,
      leftOut,
      ownPipes,
      ...(format === 'esm' && target === 'node24' ? [noStreams] : []),
      ...(isScript ? [builtins] : []),
    ],
    platform: 'node',
    format,
    target,
    supported,
    banner: { js: banner },
    footer: { js: footer },
    define,
    // Prefer ES modules: what is not used is left out.
    mainFields: ['module', 'main'],
    legalComments: 'none',
    // Every byte of source stays in memory while a daemon runs. Names stay, for whoever reads a stack.
    minifyWhitespace: !readable,
    minifySyntax: !readable,
    write: false,
    metafile: true,
    logLevel: 'warning',
    // What asks where it stands is part of the command line's bundle too, which starts no program.
    logOverride: { 'empty-import-meta': 'silent' },
  })
  const [{ text }] = result.outputFiles
  return { text, metafile: result.metafile }
}

/** Writes a file whole, so that a program started meanwhile sees the old one or the new. */
export const replace = async (path, text, mode) => {
  const temporary = `${path}.${process.pid}.tmp`
  try {
    await writeFile(temporary, text)
    await chmod(temporary, mode)
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}

const writeCaches = async (directory) => {
  // A flag of ours would make a cache that fits no other start.
  const { NODE_OPTIONS: _flags, ...env } = process.env
  // Loaded here, because the parser is one of the packages that a first start installs.
  const { PROFILED, placesOf } = await import('./profiled-functions.mjs')
  for (const name of PROFILED) {
    await writeFile(join(directory, `${name}.json`), JSON.stringify(placesOf(name)))
    // Else a random number in the process would decide the order of names in the compiled code.
    const argv = ['--predictable', join(packageRoot, 'deploy', 'compile.mjs'), name, directory]
    // Other signals are handled by the program that runs in that process.
    const options = { env, encoding: 'utf8', timeout: CACHE_MS, killSignal: 'SIGKILL' }
    const { status, error, stderr } = spawnSync(findRuntime() ?? process.execPath, argv, options)
    if (status !== 0) throw error ?? new Error(stderr)
  }
  for (const name of CACHES) await replace(join(packageRoot, 'dist', name), await readFile(join(directory, name)), 0o644)
}

/** Does work in a directory that is gone afterwards, also where what ran there was killed. */
const inTemporary = async (work) => {
  const directory = await realpath(await mkdtemp(join(tmpdir(), 'x0x-build-')))
  try {
    await work(directory)
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

/** Compiles the functions of deploy/profiles, which would take a third of a start. If that fails, the programs start without them. */
const keepCompiled = async () =>
  inTemporary(writeCaches).catch(async (error) => {
    for (const name of CACHES) await rm(join(packageRoot, 'dist', name), { force: true })
    console.error(`rexd and x0xd will start slower, because their compiled code could not be kept: ${error.message}`)
  })

/** The declarations of what the package exports, and whatever of it a runtime of 20 does not have is an error. */
const declarations = async () => {
  const tsc = join(packageRoot, 'node_modules', 'typescript', 'bin', 'tsc')
  await rm(join(packageRoot, 'dist', 'types'), { recursive: true, force: true })
  const { status, stdout } = spawnSync(process.execPath, [tsc, '-p', join(packageRoot, 'deploy', 'tsconfig.client.json')], {
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(`the declarations of the client cannot be made:\n${stdout}`)
}

const make = async () => {
  const targets = Object.values(TARGETS)
  const missing = targets.filter(({ entry }) => !existsSync(join(packageRoot, entry)))
  if (missing.length > 0) throw new Error(`nothing to build from: ${missing.map(({ entry }) => entry).join(', ')} is missing`)
  const [page, ...bundles] = await Promise.all([buildPage(), ...targets.map(bundle)])
  await mkdir(join(packageRoot, 'dist', 'page'), { recursive: true })
  await Promise.all(targets.map(({ out }, i) => replace(join(packageRoot, out), bundles[i].text, 0o755)))
  for (const [name, bytes] of Object.entries(page.files)) await replace(join(packageRoot, 'dist', 'page', name), bytes, 0o644)
  // What was built before and is none of ours any more would be packed with the rest.
  const ours = new Set(targets.map(({ out }) => basename(out)))
  for (const name of await readdir(join(packageRoot, 'dist')))
    if (/\.[cm]js$/.test(name) && !ours.has(name)) await rm(join(packageRoot, 'dist', name), { force: true })
  await keepCompiled()
  await declarations()
  const packages = await packagesIn([...page.metafiles, ...bundles.map(({ metafile }) => metafile)])
  await replace(join(packageRoot, 'dist', 'THIRD-PARTY-LICENSES.txt'), await licences(packages), 0o644)
  return packages
}

/** Builds everything into dist/; answers the packages of others that are inside. */
export const buildAll = async () => {
  const packages = await noteBuild(make)
  // Its process would stay as long as ours.
  await (await import('esbuild')).stop()
  return packages
}

/** The same, where that is not what stands there already. */
export const buildWhatIsNew = async () => noted() ?? buildAll()
