import { isAppError } from '../../../base/errors.ts'
import { VERSION } from '../../../base/runtime.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import type { Route } from '../../../doors/rest/routes.ts'
import type { CliContext } from '../context.ts'
import { printAnswer, printLine, printTable, table } from '../print.ts'

type Fields = Readonly<Record<string, unknown>>

const isFields = (value: unknown): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value)

const cellText = (value: unknown): string => {
  if (value === null || value === undefined) return '-'
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (Array.isArray(value)) return value.length === 0 ? 'none' : value.map(cellText).join(', ')
  if (isFields(value))
    return (
      Object.entries(value)
        .map(([name, one]) => `${name} ${cellText(one)}`)
        .join(', ') || 'none'
    )
  return String(value)
}

/** Aligned values and short lists, without counters at 0. */
const plainLines = (fields: Fields, indent: string): string[] => {
  const rows = Object.entries(fields).filter(([, value]) => value !== 0)
  const width = Math.max(0, ...rows.map(([name]) => name.length))
  return rows.map(([name, value]) => shownLine(`${indent}${name.padEnd(width)}  ${cellText(value)}`))
}

const isRows = (value: unknown): value is readonly Fields[] => Array.isArray(value) && value.length > 0 && value.every(isFields)

/** A group of values under its name, or a table of similar items. */
const blockLines = (name: string, value: unknown, indent: string): string[] => {
  const lines = isRows(value)
    ? table(
        Object.keys(value[0]!).map((key) => key.toUpperCase()),
        value.map((row) => Object.values(row).map(cellText)),
      ).map((line) => `${indent}  ${line}`)
    : isFields(value)
      ? fieldLines(value, `${indent}  `)
      : []
  return lines.length === 0 ? [] : [shownLine(`${indent}${name}`), ...lines]
}

const isBlock = (value: unknown): boolean => isFields(value) || isRows(value)

const fieldLines = (fields: Fields, indent: string): string[] => {
  const entries = Object.entries(fields)
  return [
    ...plainLines(Object.fromEntries(entries.filter(([, value]) => !isBlock(value))), indent),
    ...entries.filter(([, value]) => isBlock(value)).flatMap(([name, value]) => blockLines(name, value, indent)),
  ]
}

/** `x0x diagnostics exec|dm|mesh`. The text omits counters at 0; `--json` has them. */
export const runDiagnostics = async (context: CliContext, { command }: CommandLine): Promise<number> => {
  const answer = await context.api.json<Fields>({ method: 'GET', path: `/${command.replace(' ', '/')}` })
  return printAnswer(context, answer, async () => {
    const { ok: _ok, ...fields } = answer
    return write(context.stdout, `${fieldLines(fields, '').join('\n')}\n`)
  })
}

export const runRoutes = async (context: CliContext): Promise<number> => {
  const answer = await context.api.json<{ routes: readonly Route[] }>({ method: 'GET', path: '/routes' })
  return printAnswer(context, answer, async () => {
    const rows = answer.routes.map((route) => [route.method, route.path, route.cli ?? '', route.description])
    return printTable(context, ['METHOD', 'PATH', 'COMMAND', 'DOES'], rows)
  })
}

/** The daemon's version, or null if none answers. */
const daemonVersion = async (context: CliContext): Promise<string | null> => {
  try {
    return (await context.api.json<{ readonly version: string }>({ method: 'GET', path: '/agent' })).version
  } catch (error) {
    if (isAppError(error)) return null
    throw error
  }
}

export const runVersion = async (context: CliContext): Promise<number> => {
  const daemon = await daemonVersion(context)
  const runtime = `node ${process.versions.node}`
  return printAnswer(context, { ok: true, version: VERSION, runtime, daemon_version: daemon }, async () => {
    await printLine(context, `x0x ${VERSION} (${runtime})`)
    if (daemon === null) return printLine(context, 'x0xd does not answer')
    const other = daemon === VERSION ? '' : ': its version differs from that of this command; restart x0xd, or update one of them'
    return printLine(context, shownLine(`x0xd ${daemon}${other}`))
  })
}
