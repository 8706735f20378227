import { readdirSync, readFileSync } from 'node:fs'
import { join, posix } from 'node:path'

import { parseSync, Visitor } from 'oxc-parser'

/** One imported item, as written in the file. */
export interface Import {
  readonly from: string
  /** The path from the root for a file of this repository. Otherwise undefined. */
  readonly file: string | undefined
  /** Imported names; `*` for a namespace, `default` for a default import. */
  readonly names: readonly string[]
  /** True for `import()`, which loads the file when the call runs. */
  readonly dynamic: boolean
}

export interface Source {
  readonly path: string
  readonly text: string
  readonly imports: readonly Import[]
  /** Number of lines, with blank lines and comments. */
  readonly allLines: number
  /** Number of lines without blank lines and comments. */
  readonly lines: number
  /** Names of the classes, interfaces and type aliases that the file declares and exports. */
  readonly exportedTypes: readonly string[]
  /** Every function with a body, with its number of lines (no blank lines, no comments). */
  readonly functions: readonly { readonly name: string; readonly lines: number }[]
  /** Uses of globals and options that a rule may forbid: `Date.now`, `process`, `shell: true`, … */
  readonly uses: ReadonlySet<string>
  /** Statements at the top level with an effect when the file is imported. */
  readonly topLevelEffects: number
  readonly onlyReexports: boolean
  readonly hasDefaultExport: boolean
}

type Parsed = ReturnType<typeof parseSync>

const lineCount = (code: string): number => code.split('\n').filter((line) => line.trim() !== '').length

/** The text with its comments replaced by spaces. */
const codeOf = (text: string, { comments }: Parsed): string => {
  let code = ''
  for (const { start, end } of comments) code += text.slice(code.length, start) + text.slice(start, end).replaceAll(/[^\n]/g, ' ')
  return code + text.slice(code.length)
}

const importsOf = (path: string, text: string, { module }: Parsed): Import[] => {
  const found: [from: string, names: string[], dynamic: boolean][] = []
  for (const { moduleRequest, entries } of module.staticImports) {
    const names = entries.map(({ importName }) =>
      importName.kind === 'Name' ? (importName.name ?? '') : importName.kind === 'Default' ? 'default' : '*',
    )
    found.push([moduleRequest.value, names, false])
  }
  for (const { entries } of module.staticExports) {
    for (const { moduleRequest, importName } of entries)
      if (moduleRequest) found.push([moduleRequest.value, [importName.name ?? '*'], false])
  }
  for (const { moduleRequest } of module.dynamicImports) {
    found.push([text.slice(moduleRequest.start, moduleRequest.end).replace(/^['"`]|['"`]$/g, ''), ['*'], true])
  }
  return found.map(([from, names, dynamic]) => ({
    from,
    names,
    dynamic,
    file: from.startsWith('.') ? posix.join(posix.dirname(path), from) : undefined,
  }))
}

const inspect = (code: string, { program }: Parsed) => {
  const functions: { name: string; lines: number }[] = []
  const uses = new Set<string>()
  const measure = (name: string, node: { start: number; end: number }): void => {
    functions.push({ name, lines: lineCount(code.slice(node.start, node.end)) })
  }
  new Visitor({
    FunctionDeclaration: (node) => measure(node.id?.name ?? 'function', node),
    FunctionExpression: (node) => measure(node.id?.name ?? 'function', node),
    ArrowFunctionExpression: (node) => measure('arrow function', node),
    Identifier: (node) => void uses.add(node.name),
    MemberExpression: (node) => {
      if (node.object.type === 'Identifier' && node.property.type === 'Identifier') uses.add(`${node.object.name}.${node.property.name}`)
    },
    NewExpression: (node) => {
      if (node.callee.type === 'Identifier' && node.arguments.length === 0) uses.add(`new ${node.callee.name}()`)
    },
    Property: (node) => {
      if (node.key.type === 'Identifier' && node.value.type === 'Literal' && node.value.value === true) uses.add(`${node.key.name}: true`)
    },
  }).visit(program)
  return { functions, uses }
}

const TYPE_DECLARATIONS = ['ClassDeclaration', 'TSInterfaceDeclaration', 'TSTypeAliasDeclaration']

const exportedTypesOf = ({ program }: Parsed): string[] =>
  program.body.flatMap((node) => {
    const declared = node.type === 'ExportNamedDeclaration' ? node.declaration : null
    return declared && 'id' in declared && declared.id?.type === 'Identifier' && TYPE_DECLARATIONS.includes(declared.type)
      ? [declared.id.name]
      : []
  })

const REEXPORTS = new Set(['ExportAllDeclaration', 'ImportDeclaration', 'ExportNamedDeclaration'])
const EFFECTS = new Set([
  'ExpressionStatement',
  'IfStatement',
  'ForStatement',
  'ForOfStatement',
  'ForInStatement',
  'WhileStatement',
  'TryStatement',
  'BlockStatement',
])

/** The facts about one file that the rules need. Throws if the file does not parse. */
export const parseSource = (path: string, text: string): Source => {
  const parsed = parseSync(path, text)
  if (parsed.errors.length > 0) throw new Error(`${path}: ${parsed.errors[0]?.message}`)
  const { body } = parsed.program
  const code = codeOf(text, parsed)
  const own = body.filter((node) => !REEXPORTS.has(node.type) || (node.type === 'ExportNamedDeclaration' && node.declaration !== null))
  return {
    path,
    text,
    imports: importsOf(path, text, parsed),
    allLines: text.split('\n').length - (text.endsWith('\n') ? 1 : 0),
    lines: lineCount(code),
    exportedTypes: exportedTypesOf(parsed),
    ...inspect(code, parsed),
    topLevelEffects: body.filter((node) => EFFECTS.has(node.type)).length,
    onlyReexports: body.length > 0 && own.length === 0,
    hasDefaultExport: body.some((node) => node.type === 'ExportDefaultDeclaration'),
  }
}

/** Every TypeScript file below a directory, sorted, with paths from `root`. */
export const readSources = (root: string, directory: string): Source[] =>
  readdirSync(join(root, directory), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted()
    .map((path) => parseSource(path.slice(root.length + 1), readFileSync(path, 'utf8')))
