import { TRANSPARENT_PROGRAMS } from '../../src/policy/approval/transparent.ts'
import { rexdSettings, settings, toolSettings } from './config.ts'
import { folders, programs } from './architecture.ts'
import { benchTargets } from './bench.ts'
import { aclSections } from './acl.ts'
import { denials, errors, warnings } from './errors.ts'
import { dataFiles } from './files.ts'
import { PAGES, referencePage } from '../../src/cli/man.ts'
import type { Section } from './fill.ts'
import { modeSections } from './modes.ts'
import { MCP_SECTIONS } from './mcp.ts'
import { OBSERVABILITY } from './observability.ts'
import { limits, peerRates } from './limits.ts'
import { libp2pMembers, libp2pVersions } from './libp2p.ts'
import { violations } from './mesh.ts'
import { signatureDomains } from './protocol.ts'
import { reloadOutcomes } from './reload.ts'
import { REST } from './rest.ts'
import { REXD_SECTIONS } from './rexd.ts'
import { code } from './table.ts'
import { protocolVersions } from './versions.ts'

/** Every generated section by its name in a page. A test fails if no page contains a section. */
export const SECTIONS: Readonly<Record<string, Section>> = {
  'bench-targets': benchTargets,
  folders,
  programs,
  'libp2p-members': libp2pMembers,
  'libp2p-versions': libp2pVersions,
  'protocol-versions': protocolVersions,
  'reload-outcomes': reloadOutcomes,
  'signature-domains': signatureDomains,
  commands: () => referencePage(Object.values(PAGES).flat()),
  'transparent-programs': () => TRANSPARENT_PROGRAMS.toSorted().map(code).join(' '),
  ...aclSections,
  ...modeSections,
  errors,
  denials,
  violations,
  warnings,
  ...OBSERVABILITY,
  settings,
  'tool-settings': toolSettings,
  'rexd-settings': rexdSettings,
  'data-files': dataFiles,
  limits,
  'peer-rates': peerRates,
  ...MCP_SECTIONS,
  ...REST,
  ...REXD_SECTIONS,
}
