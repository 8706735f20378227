import type { Environment } from '../../base/runtime.ts'
import { fail, reportFindings } from '../../doctor/findings.ts'
import { checkProgramStart, inspectRexd, modesFindings, rexdFindings } from '../../doctor/rexd-check.ts'
import type { McpFlags } from './flags.ts'
import { writableRules } from './own-files.ts'

const TOPIC = 'configuration'

/** Prints the problems of a configuration, or what it grants, and returns the exit status. */
export const check = async (flags: Extract<McpFlags, { mode: 'check' }>, env: Environment): Promise<number> => {
  const found = await inspectRexd(flags.config, env, { http: false })
  const inspection = found.config === null ? found : { ...found, problems: [...found.problems, ...writableRules(found.config, null)] }
  const findings = rexdFindings(inspection, { topic: TOPIC, obstacle: (text) => fail(TOPIC, text, null) })
  const { config } = inspection
  const modes = config === null ? [] : await modesFindings(config, env)
  return reportFindings([...findings, ...checkProgramStart(), ...modes], flags)
}
