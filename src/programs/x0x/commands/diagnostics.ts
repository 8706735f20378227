import type { Route } from '../../../doors/rest/routes.ts'
import type { CliContext } from '../context.ts'
import { printAnswer, printJson, printTable } from '../print.ts'

/** `x0x diagnostics WHAT`: the daemon's own JSON, indented, so that people and programs read the same. */
export const runDiagnostics = async (context: CliContext, what: 'exec' | 'dm' | 'mesh'): Promise<number> => {
  await printJson(context, await context.api.json({ method: 'GET', path: `/diagnostics/${what}` }))
  return 0
}

/** `x0x routes`: what the API offers and which command uses it. */
export const runRoutes = async (context: CliContext): Promise<number> => {
  const answer = await context.api.json<{ routes: readonly Route[] }>({ method: 'GET', path: '/routes' })
  return printAnswer(context, answer, async () => {
    const rows = answer.routes.map((route) => [route.method, route.path, route.cli ?? '', route.description])
    return printTable(context, ['METHOD', 'PATH', 'COMMAND', 'DOES'], rows)
  })
}
