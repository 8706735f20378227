import { fstatSync, readlinkSync, statSync } from 'node:fs'
import { mkdir, unlink, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { AppError, attempt, errnoOf } from '../../base/errors.ts'
import { shellWord } from '../../base/format.ts'
import { absolutePath } from '../../base/home.ts'
import { realPath } from '../../base/path-resolution.ts'
import type { Environment } from '../../base/runtime.ts'
import { configHome, dataDirOf, instanceChoice } from '../../clients/paths.ts'
import { loadRexdConfig } from '../../config/rexd-config.ts'
import { isWithin } from '../../policy/local/authorize.ts'
import type { McpFlags } from './flags.ts'

type Init = Extract<McpFlags, { mode: 'init' }>

/** Commands that take no argument from the agent and read no file that it could write. */
const FIRST_COMMANDS: readonly (readonly string[])[] = [['true'], ['date'], ['pwd'], ['ls', '-la']]

const ruleText = (argv: readonly string[]): string => `[[security.allow_commands]]\nargv = ${JSON.stringify(argv)}\n`

const configText = ({
  root,
  journal,
  rules,
}: {
  root: string
  journal: string
  rules: string | null
}): string => `# Rights of an AI agent that uses the tools of \`x0x mcp\`. See docs/ai-agents.md and docs/config.md.

[security]
allow_shell = false
allow_pty = false
# true: a command on a target can continue after its session, as a detached run (docs/mcp.md).
allow_detach = false
# false: the AI agent can read files, but not change them.
allow_write = true
# allow_env: variables that the AI agent may set. pass_env: variables of \`x0x mcp\` that commands get.
allow_env = []
pass_env = []
# Agents of the mesh that may run commands. Their ACLs also decide.
allow_targets = ${JSON.stringify(rules === null ? [] : [rules])}

# Where commands run, and which of them need approval (docs/modes.md). Without this table, commands run on this machine within
# the rules below, without approval. The host "gateway" needs an approval service: x0xd, or x0x desk.
# [tools.exec]
# host = "sandbox"          # bubblewrap: only the working directory is writable, no network; or "gateway": this machine
# security = "allowlist"    # on this machine: commands that an approver listed or granted; "full": all that the rules below allow
# ask = "on-miss"           # other commands need approval; "always": all commands need it
# [[tools.exec.always_ask]]
# argv = ["git", "push", "<ANY...>"]
# reason = "others see what is pushed"

# The AI agent reads and changes files below these directories. Commands start in them.
[[security.allowed_roots]]
path = ${JSON.stringify(root)}

# Only these commands are allowed, token by token; args = "any" allows any further arguments. Programs such as git, make and npm
# take commands from files in the directory. An AI agent that can write these files can make them run anything.
${FIRST_COMMANDS.map(ruleText).join('')}
[audit]
path = ${JSON.stringify(journal)}
`

/** The default configuration of a directory, named after it. Two directories of one name share it. */
const firstConfig = (root: string, env: Environment): string => {
  const name = basename(root).replaceAll(/[^A-Za-z0-9._-]/g, '_')
  return join(configHome(env), 'x0x', 'mcp', `${name === '' ? 'root' : name}.toml`)
}

/** The resolved directory. Throws `bad_config` if it is not one. */
const rootOf = (directory: string): string => {
  const path = absolutePath('--init', directory)
  const root = attempt(() => realPath(path))
  if (root !== null && statSync(root).isDirectory()) return root
  throw new AppError('bad_config', `--init: ${path} is not a directory; create it, or name another`)
}

/** The regular file that standard output is written to, or null. */
const outputFile = (): string | null => attempt(() => (fstatSync(1).isFile() ? readlinkSync('/proc/self/fd/1') : null))

const write = async (path: string, text: string): Promise<void> => {
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 })
    await writeFile(path, text, { mode: 0o600, flag: 'wx' })
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw error
    throw new AppError('conflict', `${path} exists already and stays unchanged; name another file with --config, or remove it`, {
      cause: error,
    })
  }
}

/** The entry for an agent runtime, which may start elsewhere and without the variables that select the daemon. */
const entryText = (
  { whoami, rules }: Pick<Init, 'whoami' | 'rules'>,
  config: string,
  { X0X_NAME, X0X_DATA_DIR: dataDir }: Environment,
): string => {
  const env = {
    ...(X0X_NAME !== undefined && { X0X_NAME }),
    ...(dataDir !== undefined && { X0X_DATA_DIR: absolutePath('X0X_DATA_DIR', dataDir) }),
  }
  const server = { command: 'x0x', args: ['mcp', '--whoami', whoami, '--config', config, ...(rules === null ? [] : ['--rules', rules])] }
  return `${JSON.stringify({ mcpServers: { [rules ?? 'x0x']: { ...server, ...(Object.keys(env).length > 0 && { env }) } } }, null, 2)}\n`
}

/**
 * Writes a first configuration for a directory. The JSON for the agent runtime goes to standard output, everything else to standard error.
 */
export const init = async ({ directory, whoami, config, rules }: Init, env: Environment): Promise<number> => {
  const root = rootOf(directory)
  const path = absolutePath('--config', config ?? firstConfig(root, env))
  const journal = join(dirname(path), `${basename(path, '.toml')}.log`)
  // An agent that can write the configuration can grant itself anything.
  if (isWithin(path, root))
    throw new AppError('bad_config', `${path} is below ${root}, where the AI agent may write: name a file outside of it with --config`)
  const keys = dataDirOf(instanceChoice({ name: null, dataDir: null }, env))
  if (isWithin(keys, root) || isWithin(root, keys))
    throw new AppError('bad_config', `--init: the AI agent could read the keys of x0x in ${keys}; choose another directory`)
  await write(path, configText({ root, journal, rules }))
  try {
    await loadRexdConfig(path, env)
  } catch (error) {
    await unlink(path)
    throw error
  }
  process.stderr.write(
    [
      rules === null
        ? `Wrote ${path}: files below ${root}, no shell, and these commands: ${FIRST_COMMANDS.map((argv) => argv.join(' ')).join(', ')}.`
        : `Wrote ${path}. Its tools are the commands that ${rules} lists for this machine, and no others (x0x acl mine ${shellWord(rules)}).`,
      `The audit log is ${journal}.`,
      'Add the JSON to the file of your AI runtime (docs/ai-agents.md lists the files), then check it:',
      `x0x mcp --check --config ${path}`,
      '',
    ].join('\n'),
  )
  const output = outputFile()
  if (output !== null && isWithin(output, root))
    process.stderr.write(
      `${output} is below ${root}, where the AI agent may write, so it could change what its runtime starts. Keep the file where the AI agent cannot write.\n`,
    )
  process.stdout.write(entryText({ whoami, rules }, path, env))
  return 0
}
