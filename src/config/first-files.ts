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
}: FirstFilesOptions): string => `# Settings of x0xd. docs/config.md lists all of them. To find wrong or unknown keys, run: x0xd --check

# The name that other agents see. It proves nothing.
${displayName === null ? '# display_name = "…"' : `display_name = ${JSON.stringify(displayName)}`}

# Addresses on which other agents reach this one. [] = none: this agent can ask others, and no agent can ask it.
# Port 0 = a free port, another one at each start.
listen = ${JSON.stringify(reachable ? [defaultListen(name)] : [])}

# Find agents on the local network, and be found by them.
mdns = ${reachable}

# Port of the API for local programs, on 127.0.0.1 only. 0 = a free port.
api_port = 0

# The ACL file: who may run which commands on this machine. It allows nothing yet.
exec_acl = "exec-acl.toml"
`

/** The ACL of `--init`, which allows nothing. */
export const initialAcl = ({
  dir,
}: DataPaths): string => `# The ACL: which agent, on which machine, may run exactly which commands. See docs/acl.md. It allows nothing yet.
# New permissions need a restart of x0xd. A reload (SIGHUP) only removes permissions.

[exec]
# Exec is on, but no entry lists a command, so every request is denied and recorded in the audit log.
enabled = true

# The audit log of every request, denial, start and end. If it cannot be written, nothing runs.
audit_log_path = ${JSON.stringify(`${dir}/exec.log`)}

# Working directory of programs.
default_cwd = "/"

# Add one entry for each agent and machine. These commands print one:
#   x0x invite NAME -- COMMAND...     for a new machine
#   x0x acl suggest                   for the last denied command
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
    [paths.execAcl, 'ACL (allows nothing)', async () => createFileAtomic(paths.execAcl, initialAcl(paths), 0o600)],
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
