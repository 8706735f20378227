import type { Import, Source } from './sources.ts'

/** A folder imports only itself and the folders before it. */
export const LAYERS = (
  'base protocol executor-api web sdk identity trust policy journal transcripts desk process fs ' +
  'executor mesh links exec doors clients config cli supervision doctor programs'
).split(' ')
/** Folders that parse what comes from the network. They know the executor only by `executor-api`. */
const NETWORK = ['mesh', 'links', 'exec', 'doors']
/** Folders that hold keys, permissions, logs or programs. */
const EXECUTOR = ['trust', 'policy', 'journal', 'transcripts', 'desk', 'process', 'fs', 'executor']
/** The types of the counters, which the page shows. */
const SHOWN_COUNTERS = 'src/executor/exec-counters.ts'
const AGENT_KEY = 'src/identity/agent-key.ts'
const main = (program: string): string => `src/programs/${program}/main.ts`
/** The module that the package exports as `x0x/client`. */
const CLIENT_ENTRY = 'src/sdk/entry.ts'
/** The page and its sign-in, which run in a browser. */
const PAGE_ENTRIES = ['src/web/main.tsx', 'src/web/sign-in.ts']
/** The files that something outside `src/` starts. Every other file must be imported by a file of `src/`. */
const ENTRY_POINTS = [
  ...'x0x x0xd x0xd-network rexd mcp ui desk bundle console rexec rexec-mcp'.split(' ').map(main),
  CLIENT_ENTRY,
  ...PAGE_ENTRIES,
  // It holds the terminal of a single program.
  'src/process/terminal-main.ts',
  // The build puts it in front of every program.
  'src/base/own-pipes.ts',
]

/** Packages that parse or serve network data, and the code that starts programs. Each belongs to one process only. */
const NETWORK_PACKAGES =
  /^(libp2p|@libp2p\/.*|@chainsafe\/.*|@multiformats\/.*|datastore-core|fastify|@fastify\/.*|fastify-type-provider-zod|zod|ws)$/
const MESH_PACKAGES = /^(libp2p|@libp2p\/.*|@chainsafe\/.*|@multiformats\/.*|datastore-core)$/
const STARTS_PROGRAMS = /^(node:)?(child_process|cluster|worker_threads)$/

/** Blank lines and comments are not counted. */
const MAX_FILE_LINES = 350
const MAX_FUNCTION_LINES = 60

/** A file with fewer lines, blank lines and comments included, needs a reason to be a separate file. */
const SMALL_FILE_LINES = 40
const SMALL_FILE_IMPORTERS = 3
/** Small files that are not started, loaded on demand or imported often. Each has a reason to exist. */
const SMALL_FILES: Readonly<Record<string, string>> = {
  'src/base/ip-network.ts': 'mesh and doors both need it, and nothing else in base/ knows IP networks',
  'src/clients/machines.ts': 'only commands other than a plain exec load it',
  'src/doors/console/screen/silent-screen.ts': 'it replaces the module that loads the terminal emulator',
  'src/doors/content-bytes.ts': 'the MCP server and REXD share it',
  'src/doors/rpc/schemas.ts': 'answers and methods share it',
  'src/executor/json-body.ts': 'operations and operator proofs share it',
  'src/identity/check-operator-proof.ts': 'the client, which only makes proofs, does not load the check',
  'src/identity/light-hash.ts': 'a plain exec loads it instead of the hashes of node:crypto',
  'src/process/desktop-notice.ts': 'only process/ may start programs',
  'src/programs/mcp/own-files.ts': 'serving and checking share it',
  'src/protocol/wire/invitation.ts': 'proto/invitation.cddl is made of its exports',
  'src/web/token-text.ts': 'a test reads it without preact',
}

/** The folders and files of `src/` that may import a package. A package without a row may not be imported. */
const OWNERS: readonly (readonly [RegExp, readonly string[]])[] = [
  [/^(libp2p|@libp2p\/.*|@chainsafe\/.*|@multiformats\/.*|datastore-core)$/, ['mesh/']],
  [/^@noble\//, ['identity/']],
  [/^(fastify|@fastify\/.*|fastify-type-provider-zod|zod)$/, ['doors/']],
  [/^ws$/, ['doors/', 'sdk/web-socket.ts']],
  [/^@modelcontextprotocol\/server(\/|$)/, ['doors/mcp/']],
  // The main entry would load native code.
  [/^cbor-x\/(encode|decode)$/, ['protocol/']],
  [/^preact(\/|$)/, ['web/']],
  [/^smol-toml$/, ['base/toml.ts']],
  [/^pino$/, ['base/log.ts']],
  [/^@xterm\/headless$/, ['doors/console/screen/']],
  [/^get-east-asian-width$/, ['doors/console/screen/cells.ts']],
  [/^uuid$/, ['identity/', 'programs/']],
  [/^diff$/, ['programs/x0x/fleet/group-view.ts']],
  [/^(node:)?child_process$/, ['process/', 'supervision/own-process.ts', 'sdk/byte-transport.ts']],
  [/^node:/, ['']],
]

/** Functions of node:crypto that create or open keys, signatures and sealed bytes. */
const IDENTITY_CRYPTO =
  /^(\*|default|createCipheriv|createDecipheriv|encapsulate|decapsulate|sign|verify|createSign|createVerify|generateKey(Pair)?(Sync)?|create(Private|Public|Secret)Key|diffieHellman|createECDH|createDiffieHellman|hkdf(Sync)?)$/

/** Free identifiers that would make `protocol/` depend on more than the bytes it is given. */
const IMPURE = [
  'Date.now',
  'new Date()',
  'Math.random',
  'process',
  'console',
  'setTimeout',
  'setInterval',
  'setImmediate',
  'performance',
  'crypto',
  'fetch',
]

type Rule = (sources: readonly Source[]) => string[]

const folderOf = (path: string): string => path.split('/')[1] ?? ''
const isIn = (path: string, folders: readonly string[]): boolean => folders.includes(folderOf(path))

const eachImport = (sources: readonly Source[], judge: (source: Source, it: Import) => string | false | undefined): string[] =>
  sources.flatMap((source) => source.imports.map((it) => judge(source, it)).filter((text) => typeof text === 'string'))

/** Every file that importing one file loads at run time or compile time. */
const reachOf = (sources: readonly Source[]): ((path: string) => Set<string>) => {
  const byPath = new Map(sources.map((source) => [source.path, source]))
  return (path) => {
    const seen = new Set<string>()
    const visit = (at: string): void => {
      if (seen.has(at)) return
      seen.add(at)
      for (const { file } of byPath.get(at)?.imports ?? []) if (file) visit(file)
    }
    visit(path)
    return seen
  }
}

const names: Rule = (sources) =>
  sources.flatMap(({ path }) => {
    const file = path.split('/').at(-1) ?? ''
    if (!/^[a-z0-9]+(-[a-z0-9]+)*\.tsx?$/.test(file)) return [`${path}: not kebab-case`]
    if (/(^|\/)(utils?|helpers?|common|misc)(\/|\.tsx?$)/.test(path)) return [`${path}: a name that says nothing`]
    return LAYERS.includes(folderOf(path)) ? [] : [`${path}: in no folder of the house`]
  })

const resolved: Rule = (sources) => {
  const known = new Set(sources.map(({ path }) => path))
  return eachImport(
    sources,
    ({ path }, { from, file }) =>
      file !== undefined && !known.has(file) && !file.endsWith('.json') && `${path}: ${from} is not a file of ours (extension?)`,
  )
}

const layers: Rule = (sources) =>
  eachImport(sources, ({ path }, { file }) => {
    if (!file?.startsWith('src/')) return undefined
    return LAYERS.indexOf(folderOf(file)) > LAYERS.indexOf(folderOf(path)) && `${path}: imports ${file}, which is above it`
  })

const programOf = (path: string): string | undefined => (isIn(path, ['programs']) ? path.split('/')[2] : undefined)

const programs: Rule = (sources) =>
  eachImport(sources, ({ path }, { file }) => {
    const other = file === undefined ? undefined : programOf(file)
    return other !== undefined && other !== programOf(path) && `${path}: imports ${file}, which is of another program`
  })

const cycles: Rule = (sources) => {
  const reach = reachOf(sources)
  return eachImport(sources, ({ path }, { file }) => file !== undefined && reach(file).has(path) && `${path}: in a cycle with ${file}`)
}

/** Only the entry of the package may consist of re-exports. Default exports are forbidden. */
const barrels: Rule = (sources) =>
  sources.flatMap(({ path, onlyReexports, hasDefaultExport }) => {
    if ((onlyReexports && path !== CLIENT_ENTRY) || /\/index\.tsx?$/.test(path)) return [`${path}: a barrel`]
    return hasDefaultExport ? [`${path}: a default export`] : []
  })

const owners: Rule = (sources) =>
  eachImport(sources, ({ path }, { from, file }) => {
    if (file !== undefined) return undefined
    const row = OWNERS.find(([pattern]) => pattern.test(from))
    return !row?.[1].some((owner) => path.startsWith(`src/${owner}`)) && `${path}: ${from} belongs to ${row?.[1].join(', ') ?? 'nobody'}`
  })

const identityCrypto: Rule = (sources) =>
  eachImport(sources, ({ path }, it) => {
    if (!/^(node:)?crypto$/.test(it.from) || isIn(path, ['identity'])) return undefined
    const taken = it.names.filter((name) => IDENTITY_CRYPTO.test(name))
    return taken.length > 0 && `${path}: ${taken.join(', ')} of node:crypto belongs to identity/`
  })

const pureProtocol: Rule = (sources) =>
  sources
    .filter(({ path }) => isIn(path, ['protocol']))
    .flatMap(({ path, imports, uses }) => [
      ...imports.filter(({ from }) => from.startsWith('node:')).map(({ from }) => `${path}: imports ${from}`),
      ...IMPURE.filter((name) => uses.has(name)).map((name) => `${path}: uses ${name}`),
    ])

const noShell: Rule = (sources) => sources.filter(({ uses }) => uses.has('shell: true')).map(({ path }) => `${path}: shell: true`)

const boundary: Rule = (sources) => {
  const reach = reachOf(sources)
  return sources
    .filter(({ path }) => isIn(path, NETWORK))
    .flatMap(({ path }) =>
      [...reach(path)].filter((file) => isIn(file, EXECUTOR) || file === AGENT_KEY).map((file) => `${path}: reaches ${file}`),
    )
}

/** Checks which files each program loads. */
const processes: Rule = (sources) => {
  const reach = reachOf(sources)
  const from = (entry: string, banned: (file: string) => boolean, packages: RegExp): string[] => {
    const reached = reach(entry)
    const imports = sources.filter(({ path }) => reached.has(path)).flatMap((source) => source.imports)
    return [
      ...[...reached].filter(banned).map((file) => `${entry}: reaches ${file}`),
      ...imports.filter((it) => packages.test(it.from)).map((it) => `${entry}: loads ${it.from}`),
    ]
  }
  const ofExecutor = (file: string): boolean => isIn(file, EXECUTOR) || file === AGENT_KEY
  return [
    ...from(main('x0xd'), (file) => isIn(file, NETWORK), NETWORK_PACKAGES),
    ...from(main('x0xd-network'), ofExecutor, STARTS_PROGRAMS),
    ...from(main('rexd'), (file) => isIn(file, ['mesh', 'links']), MESH_PACKAGES),
    ...from(main('mcp'), (file) => isIn(file, ['mesh', 'links']), MESH_PACKAGES),
    ...from(main('ui'), (file) => isIn(file, ['mesh', 'links', 'exec', 'executor', 'web']) && file !== SHOWN_COUNTERS, NETWORK_PACKAGES),
    ...from(main('desk'), (file) => isIn(file, [...NETWORK, 'process', 'executor']), NETWORK_PACKAGES),
    ...from(main('console'), (file) => isIn(file, ['mesh', 'links']), NETWORK_PACKAGES),
    ...from(main('rexec-mcp'), ofExecutor, MESH_PACKAGES),
    ...from(main('rexec'), (file) => isIn(file, ['mesh', 'links', 'executor', 'process', 'policy']), NETWORK_PACKAGES),
  ]
}

/** The client library must not load any daemon code. */
const apart: Rule = (sources) =>
  [...reachOf(sources)(CLIENT_ENTRY)]
    .filter((file) => file.startsWith('src/') && !isIn(file, ['sdk', 'protocol']))
    .map((file) => `${CLIENT_ENTRY}: reaches ${file}`)

/** The page may load only the messages of its API and the display of untrusted text. No other program may load the page. */
const page: Rule = (sources) => {
  const reach = reachOf(sources)
  return [
    ...PAGE_ENTRIES.flatMap((entry) =>
      [...reach(entry)]
        .filter((file) => file.startsWith('src/') && !isIn(file, ['web', 'protocol']) && file !== 'src/base/visible-text.ts')
        .map((file) => `${entry}: reaches ${file}`),
    ),
    ...eachImport(
      sources,
      ({ path }, { file }) =>
        file !== undefined && isIn(file, ['web']) && !isIn(path, ['web']) && `${path}: imports ${file}, which is the page`,
    ),
  ]
}

const quietImports: Rule = (sources) =>
  sources.filter(({ topLevelEffects }) => topLevelEffects > 0).map(({ path }) => `${path}: does something when imported`)

const entryPoints: Rule = (sources) => {
  const imported = new Set(sources.flatMap(({ imports }) => imports.map(({ file }) => file)))
  const roots = sources.map(({ path }) => path).filter((path) => !imported.has(path))
  return [
    ...roots.filter((path) => !ENTRY_POINTS.includes(path)).map((path) => `${path}: nobody imports it`),
    ...ENTRY_POINTS.filter((path) => !roots.includes(path)).map((path) => `${path}: not an entry point any more`),
  ]
}

const sizes: Rule = (sources) =>
  sources.flatMap(({ path, lines, functions }) => [
    ...(lines > MAX_FILE_LINES ? [`${path}: ${lines} lines`] : []),
    ...functions.filter((it) => it.lines > MAX_FUNCTION_LINES).map((it) => `${path}: ${it.name} has ${it.lines} lines`),
  ])

const typeNames: Rule = (sources) => {
  const filesOf = Map.groupBy(
    sources.flatMap(({ path, exportedTypes }) => exportedTypes.map((name) => ({ name, path }))),
    ({ name }) => name,
  )
  return [...filesOf]
    .filter(([, files]) => files.length > 1)
    .map(([name, files]) => `${name}: declared in ${files.map(({ path }) => path).join(', ')}`)
}

const smallFiles: Rule = (sources) => {
  const importersOf = Map.groupBy(
    sources.flatMap(({ path, imports }) => imports.map(({ file, dynamic }) => ({ file, path, dynamic }))),
    ({ file }) => file,
  )
  const stands = ({ path, allLines }: Source): boolean => {
    const importers = importersOf.get(path) ?? []
    return (
      allLines >= SMALL_FILE_LINES ||
      ENTRY_POINTS.includes(path) ||
      importers.some(({ dynamic }) => dynamic) ||
      new Set(importers.map((it) => it.path)).size >= SMALL_FILE_IMPORTERS
    )
  }
  return sources.filter((it) => !(it.path in SMALL_FILES || stands(it))).map(({ path, allLines }) => `${path}: ${allLines} lines`)
}

/** Each rule returns one line for each violation. */
export const RULES = {
  names,
  resolved,
  layers,
  programs,
  cycles,
  barrels,
  owners,
  identityCrypto,
  pureProtocol,
  noShell,
  boundary,
  processes,
  apart,
  page,
  quietImports,
  entryPoints,
  sizes,
  typeNames,
  smallFiles,
} satisfies Record<string, Rule>
