// Bundles all programs, the page and the SDK into dist/. Runs on any Node >= 20.
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

/** Time limit for compiling one program. It is long, because the machine may be busy. */
const CACHE_MS = 300_000
const SHEBANG = '#!/usr/bin/env node\n'
/** Three names that the bundled CommonJS packages expect and ES modules lack. */
const REQUIRE_PRELUDE = [
  "import { createRequire as __createRequire } from 'node:module'",
  'const require = __createRequire(import.meta.url)',
].join('\n')
const ESM_PRELUDE = [REQUIRE_PRELUDE, 'const __filename = import.meta.filename, __dirname = import.meta.dirname'].join('\n')

const DAEMON_PRELUDE = `${ESM_PRELUDE}
import { setFlagsFromString as __setFlags } from 'node:v8'
__setFlags('${SMALL_YOUNG_GENERATION}')`

/**
 * Ends the process at once. All output is flushed by then, and the runtime would take two milliseconds to clean up. Standard input may also
 * be a pipe that stays open.
 */
const AT_ONCE = 'process.exit(status)'
/** Options of programs that run for long, with the runtime of the package. */
const PROGRAM = { format: 'esm', target: 'node24', banner: DAEMON_PRELUDE, supported: { 'dynamic-import': true } }
/** Options of programs that start for each command, on any Node >= 20, and of the bundles that these programs load. */
const LOADED = { format: 'cjs', target: 'node20', banner: LATER_BUILTINS, supported: { 'dynamic-import': false } }
/** Options of a function that a loader compiles with a cache (see compiled-script.mjs). */
const SCRIPT = {
  format: 'cjs',
  target: 'node24',
  banner: FUNCTION.head,
  footer: FUNCTION.tail,
  supported: { 'dynamic-import': false },
  define: { 'import.meta.url': '__url' },
  isScript: true,
}
/** Options of the loader of such a function. */
const LOADER = { ...PROGRAM, entry: 'deploy/start-program.mjs', banner: SHEBANG, supported: {} }
const COMMAND = { ...LOADED, banner: SHEBANG, end: AT_ONCE }

export const TARGETS = {
  x0x: { ...COMMAND, entry: 'src/programs/x0x/main.ts', out: 'dist/x0x.cjs' },
  // All commands except a plain exec.
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
  // Standard input of the network process if the executor process starts it.
  'x0xd-network-start': { ...PROGRAM, entry: 'deploy/start-network.mjs', out: 'dist/x0xd-network-start.mjs', banner: '' },
  rexd: { ...LOADER, out: 'dist/rexd.mjs' },
  'rexd-script': { ...SCRIPT, entry: 'src/programs/rexd/main.ts', out: 'dist/rexd.cjs' },
  'x0x-mcp': { ...PROGRAM, entry: 'src/programs/mcp/main.ts', out: 'dist/x0x-mcp.mjs', end: AT_ONCE },
  // Serves the page, whose files are in dist/page.
  'x0x-ui': { ...PROGRAM, entry: 'src/programs/ui/main.ts', out: 'dist/x0x-ui.mjs', end: AT_ONCE },
  // The approval service without a daemon.
  'x0x-desk': { ...PROGRAM, entry: 'src/programs/desk/main.ts', out: 'dist/x0x-desk.mjs', end: AT_ONCE },
  // Collects information about an installation for a support request.
  'x0x-bundle': { ...PROGRAM, entry: 'src/programs/bundle/main.ts', out: 'dist/x0x-bundle.mjs', end: AT_ONCE },
  // The console host.
  console: { ...PROGRAM, entry: 'src/programs/console/main.ts', out: 'dist/console.mjs', end: AT_ONCE },
  // The MCP server of the console.
  'rexec-mcp': { ...PROGRAM, entry: 'src/programs/rexec-mcp/main.ts', out: 'dist/rexec-mcp.mjs', end: AT_ONCE },
  // The client of the console host.
  rexec: { ...COMMAND, entry: 'src/programs/rexec/main.ts', out: 'dist/rexec.cjs' },
  // The commands that do not run a command on a target.
  'rexec-maintenance-commands': {
    ...LOADED,
    entry: 'src/programs/rexec/maintenance-commands.ts',
    out: 'dist/rexec-maintenance-commands.cjs',
  },
  // Loaded if the output of a command has colours.
  'rexec-colours': { ...LOADED, entry: 'src/doors/console/render-entry.ts', out: 'dist/rexec-colours.cjs' },
  // The SDK, which programs import as x0x/client.
  client: {
    entry: 'src/sdk/entry.ts',
    out: 'dist/client.mjs',
    format: 'esm',
    target: 'node20',
    banner: REQUIRE_PRELUDE,
    supported: {},
    // Node prints the source line of an uncaught error, so this bundle is not minified.
    readable: true,
  },
  // Starts for each program on a terminal. It is CommonJS, because an ES module takes a tenth longer to start.
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

/** Source files with a separate bundle. */
const APART = {
  'other-commands.ts': 'x0x-other-commands',
  'maintenance-commands.ts': 'rexec-maintenance-commands',
  'render-entry.ts': 'rexec-colours',
}

/** Turns an import of such a file into an import of its bundle. */
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

/** Loads modules of the runtime with the source file that imports them. Otherwise the head of the bundle would load them at every start. */
const builtins = {
  name: 'builtins',
  setup: ({ onLoad }) =>
    onLoad({ filter: /\/src\/.*\.ts$/ }, async ({ path }) => ({
      loader: 'ts',
      contents: (await readFile(path, 'utf8')).replace(BUILTIN_IMPORT, required),
    })),
}

/**
 * Leaves out code that the libraries load only for features that x0x does not use. These are fastify's compilers of JSON Schema, its client
 * for tests, and its HTTPS and HTTP/2 servers. They are also pino's transports in a separate thread, and the schema validator of the MCP
 * library, which it uses only for questions to the user.
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

/** Modules that open the standard streams when a program imports them, because an import of `process` or `util` reads every property. */
const OPENS_STREAMS = /^(node:)?(process|util|assert)$/

/** Loads such a module by a call instead of an import, so that `useOwnPipes` runs first. */
const noStreams = {
  name: 'no-streams',
  setup: ({ onResolve, onLoad }) => {
    onResolve({ filter: OPENS_STREAMS }, ({ path }) => ({ path, namespace: 'no-streams' }))
    onLoad({ filter: /.*/, namespace: 'no-streams' }, ({ path }) => ({
      contents: `module.exports = globalThis.process.getBuiltinModule('${path}')`,
    }))
  },
}

/** Runs `useOwnPipes` before any other module of the program is loaded. */
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
 * Returns code that calls `main(argv, env)` of a main module, which does nothing when it is imported. The program ends when its event loop
 * is empty, unless `end` ends it earlier.
 */
const starter = (entry, end) => `
import 'own-pipes'
import { main } from './${entry}'
main(process.argv.slice(2), process.env).then(
  (status) => { ${end} },
  (error) => { console.error(error); process.exitCode = 70 },
)`

/** Returns code for a bundle that another bundle loads. */
const library = (entry) => `export * from './${entry}'`

/** Builds one target in memory. Returns its text and esbuild's metafile. */
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
    // Prefer ES modules, because esbuild leaves out their unused parts.
    mainFields: ['module', 'main'],
    legalComments: 'none',
    // A daemon keeps its source text in memory, so the text is minified. Names stay readable in stack traces.
    minifyWhitespace: !readable,
    minifySyntax: !readable,
    write: false,
    metafile: true,
    logLevel: 'warning',
    // Modules that use `import.meta` are also in the CommonJS bundle of the command line, which never calls them.
    logOverride: { 'empty-import-meta': 'silent' },
  })
  const [{ text }] = result.outputFiles
  return { text, metafile: result.metafile }
}

/** Replaces a file atomically. A program that starts meanwhile reads the old file or the new one. */
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
  // The caches must not depend on the flags of this process, because other starts have other flags.
  const { NODE_OPTIONS: _flags, ...env } = process.env
  // Imported late, because the parser is one of the packages that a first start installs.
  const { PROFILED, placesOf } = await import('./profiled-functions.mjs')
  for (const name of PROFILED) {
    await writeFile(join(directory, `${name}.json`), JSON.stringify(placesOf(name)))
    // With `--predictable` the compiled code does not depend on a random number of the process.
    const argv = ['--predictable', join(packageRoot, 'deploy', 'compile.mjs'), name, directory]
    // The program in that process handles other signals.
    const options = { env, encoding: 'utf8', timeout: CACHE_MS, killSignal: 'SIGKILL' }
    const { status, error, stderr } = spawnSync(findRuntime() ?? process.execPath, argv, options)
    if (status !== 0) throw error ?? new Error(stderr)
  }
  for (const name of CACHES) await replace(join(packageRoot, 'dist', name), await readFile(join(directory, name)), 0o644)
}

/** Calls `work` with a temporary directory, and removes the directory even if `work` fails. */
const inTemporary = async (work) => {
  const directory = await realpath(await mkdtemp(join(tmpdir(), 'x0x-build-')))
  try {
    await work(directory)
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

/**
 * Compiles the functions of deploy/profiles. Without the caches a start takes a third longer. If compiling fails, the programs start
 * without them.
 */
const keepCompiled = async () =>
  inTemporary(writeCaches).catch(async (error) => {
    for (const name of CACHES) await rm(join(packageRoot, 'dist', name), { force: true })
    console.error(`rexd and x0xd will start slower, because their compiled code could not be kept: ${error.message}`)
  })

/** Writes the type declarations of the SDK. An API that Node 20 does not have is an error. */
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
  // Files of an earlier build that are not built any more would be packed too.
  const ours = new Set(targets.map(({ out }) => basename(out)))
  for (const name of await readdir(join(packageRoot, 'dist')))
    if (/\.[cm]js$/.test(name) && !ours.has(name)) await rm(join(packageRoot, 'dist', name), { force: true })
  await keepCompiled()
  await declarations()
  const packages = await packagesIn([...page.metafiles, ...bundles.map(({ metafile }) => metafile)])
  await replace(join(packageRoot, 'dist', 'THIRD-PARTY-LICENSES.txt'), await licences(packages), 0o644)
  return packages
}

/** Builds everything into dist/. Returns the third-party packages in the bundles. */
export const buildAll = async () => {
  const packages = await noteBuild(make)
  // The process of esbuild would run until this one ends.
  await (await import('esbuild')).stop()
  return packages
}

/** The same, but only if dist/ is out of date. */
export const buildWhatIsNew = async () => noted() ?? buildAll()
