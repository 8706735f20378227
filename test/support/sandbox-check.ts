/** Prints the result of the doctor's check for these sandbox settings as JSON. */
import { sandboxFinding } from '../../src/doctor/rexd-check.ts'
import { DEFAULT_SANDBOX, type SandboxSettings } from '../../src/policy/sandbox/sandbox-settings.ts'

const findings = []
for (const settings of JSON.parse(process.argv[2] ?? '[]') as readonly Partial<SandboxSettings>[])
  findings.push(await sandboxFinding({ ...DEFAULT_SANDBOX, ...settings }))
process.stdout.write(JSON.stringify(findings))
