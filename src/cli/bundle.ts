import { type CommandSpec, VERSION_OPTION } from './command.ts'

/** A program of its own: it examines the installation, as `x0xd --doctor` does. */
export const BUNDLE: CommandSpec = {
  name: 'x0x bundle',
  summary: 'a file for whoever helps you: findings, versions, counters, the ends of journals; no key, no command, no name',
  text: 'Writes one JSON text for whoever helps you. What it quotes has no key, token, command, directory or name in it.',
  usage: '[options] [FILE]',
  arguments: [{ flags: '[file]', text: 'default: x0x-bundle-TIME.json here; one that is there is never written over' }],
  options: [
    { flags: '--name <name>', text: 'instance of the daemon: its data directory is ~/.x0x-NAME (X0X_NAME)' },
    { flags: '--data-dir <dir>', text: 'data directory (X0X_DATA_DIR)' },
    { flags: '--config <file>', text: 'its configuration; default: config.toml in the data directory (X0X_CONFIG)' },
    { flags: '--exec-acl <file>', text: 'its ACL, where it was started with another than the default' },
    { flags: '--log <file>', text: 'the last lines of its log too; -: standard input' },
    { flags: '--json', text: 'say where it was written as one JSON object' },
    VERSION_OPTION,
  ],
  examples: [
    'x0x bundle',
    'journalctl -u x0xd -n 500 -o cat | x0x bundle --log -',
    'x0x bundle --name lab ~/lab.json && less ~/lab.json     read it before you send it',
  ],
  notes: [
    '',
    'Ids, addresses, paths and names are hashed under a key that is thrown away: the same one has the same hash within one',
    'bundle, and means nothing elsewhere. The file is for its owner alone (0600). Exit status 0; 1 where it was not written.',
  ],
}
