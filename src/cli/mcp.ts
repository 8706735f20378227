import { DEFAULT_REXD_CONFIG } from '../clients/paths.ts'
import { type CommandSpec, VERSION_OPTION } from './command.ts'

/** With these it serves nothing to its standard input. */
const IN_PLACE_OF_SERVING = ['init', 'check']

/** A program of its own to those who type it: it takes no option of `x0x`. */
export const MCP: CommandSpec = {
  name: 'x0x mcp',
  summary: 'tools for an AI agent, over standard input and output (Model Context Protocol)',
  text: 'Serves tools for an AI agent over standard input and output, by the Model Context Protocol.',
  options: [
    { flags: '--whoami <name>', text: 'who calls: the name that the journal has of its runs; needed to serve' },
    { flags: '--config <file>', text: 'configuration file, as of rexd', default: DEFAULT_REXD_CONFIG },
    { flags: '--init <dir>', text: 'write a first configuration: files below this directory, and no shell', conflicts: ['check'] },
    { flags: '--check', text: 'check the configuration, serve nothing' },
    { flags: '--json', text: 'with --check: one JSON object', goesWith: ['check'] },
    {
      flags: '--answer-within-ms <ms>',
      text: "a call is answered by then, whatever its command does (default: the file's, else 45000)",
      conflicts: IN_PLACE_OF_SERVING,
    },
    {
      flags: '--record <file>',
      text: 'make this file and write into it what happens to every run, output too, for x0x replay',
      conflicts: IN_PLACE_OF_SERVING,
    },
    {
      flags: '--rules <agent>',
      text: 'in place of the tools that take a command: one for each command that this agent of the mesh allows us, as it tells them',
      conflicts: IN_PLACE_OF_SERVING,
    },
    VERSION_OPTION,
  ],
  examples: [
    'x0x mcp --init ~/myapp                             a first configuration, and the JSON for a runtime of agents',
    'x0x mcp --check --config ~/agent.toml              would this configuration do?',
    'x0x mcp --whoami reviewer                          with /etc/rexd/config.toml',
    "x0x mcp --whoami reviewer --config ~/agent.toml    with a configuration of one's own",
    'x0x mcp --whoami reviewer --rules bob              a tool for each command that bob allows (x0x acl mine bob)',
    'X0X_DATA_DIR=~/.x0x-lab x0x mcp --whoami reviewer  targets by the daemon of this data directory',
  ],
  notes: [
    '',
    'A runtime of agents starts it; its configuration names this command line. It ends with its standard input, and with it all',
    'that it started. It runs what the configuration allows, as the user who starts it. See docs/mcp.md.',
  ],
}
