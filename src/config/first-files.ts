import { statSync } from 'node:fs'
import { attempt } from '../base/errors.ts'
import { ensurePrivateDir } from '../base/file-permissions.ts'
import { createFileAtomic } from '../base/files.ts'
import type { DataPaths } from '../clients/paths.ts'
import { loadOrCreateAgentKey } from '../identity/agent-key.ts'
import { loadOrCreateSeed } from '../identity/key-file.ts'
import { rememberMachineId } from '../identity/machine-id-hash.ts'
import { loadOrCreateMachineKey } from '../identity/machine-key.ts'
import { defaultListen } from './config.ts'

/** Choices for a new daemon. */
export interface FirstFilesOptions {
  /** The value of `--name`, for one of several daemons on a host, or null. */
  readonly name: string | null
  /** The agent's name for others, or null for the host's name. */
  readonly displayName: string | null
  /** Whether others may connect. Otherwise the daemon only sends requests. */
  readonly reachable: boolean
}

export interface FirstFile {
  readonly path: string
  readonly what: string
  readonly state: 'made' | 'would be made' | 'was there'
}

const configText = ({
  name,
  displayName,
  reachable,
}: FirstFilesOptions): string => `# x0xd: the settings of this daemon; docs/config.md has all of them. Unknown keys are errors: x0xd --check tries it.

# The name in this machine's card; others see it, and it proves nothing.
${displayName === null ? '# display_name = "…"' : `display_name = ${JSON.stringify(displayName)}`}

# Where other agents reach this one. [] = nowhere: it asks others, and nobody can ask it. Port 0 = any free one, another at each start.
listen = ${JSON.stringify(reachable ? [defaultListen(name)] : [])}

# Find agents on the local network, and be found.
mdns = ${reachable}

# The API for this user's programs, on 127.0.0.1 only. 0 = any free port.
api_port = 0

# Who may run what here: the file beside this one, which allows nothing yet.
exec_acl = "exec-acl.toml"
`

const aclText = ({
  dir,
}: DataPaths): string => `# Which agent, on which machine, may run exactly which commands here: docs/acl.md. This file allows nothing yet.
# What allows more is read when x0xd starts; a reload (SIGHUP) takes only what allows less.

[exec]
# Exec is on, and no entry below lists a command: everything is denied, and the journal says what.
enabled = true

# The journal: a line for every request, denial, start and end. Nothing runs where it cannot be written.
audit_log_path = ${JSON.stringify(`${dir}/exec.log`)}

# Where programs start.
default_cwd = "/"

# An entry for each agent on each machine. These print one:
#   x0x invite NAME -- COMMAND...     for a machine that is invited
#   x0x acl suggest                   for what was denied last
`

const isThere = (path: string): boolean => attempt(() => statSync(path)) !== null

/**
 * Makes the directory (0700), keys, configuration, and an ACL that allows nothing. Existing files stay as they are. `dryRun` only reports.
 */
export const makeFirstFiles = async (
  paths: DataPaths,
  wishes: FirstFilesOptions,
  { dryRun }: { readonly dryRun: boolean },
): Promise<FirstFile[]> => {
  const files: readonly (readonly [path: string, what: string, make: () => Promise<unknown>])[] = [
    [paths.dir, 'data directory, private', async () => ensurePrivateDir(paths.dir)],
    [paths.agentKey, 'agent key', async () => loadOrCreateAgentKey(paths.dir)],
    [paths.machineKey, 'machine key', async () => rememberMachineId(paths.dir, (await loadOrCreateMachineKey(paths.dir)).machineId)],
    [paths.operatorKey, 'operator key', async () => loadOrCreateSeed({ path: paths.operatorKey, header: null })],
    [paths.config, 'configuration', async () => createFileAtomic(paths.config, configText(wishes), 0o600)],
    [paths.execAcl, 'ACL (allows nothing)', async () => createFileAtomic(paths.execAcl, aclText(paths), 0o600)],
  ]
  const found: FirstFile[] = []
  for (const [path, what, make] of files) {
    const there = isThere(path)
    // This also checks an existing file: that it is a key, and private.
    if (!dryRun) await make()
    found.push({ path, what, state: there ? 'was there' : dryRun ? 'would be made' : 'made' })
  }
  return found
}
