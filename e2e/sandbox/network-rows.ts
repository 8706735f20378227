import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer, type Server } from 'node:net'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { runSandboxed } from '../../test/support/sandboxed.ts'
import { row, type Row } from './row.ts'

// What a run in a sandbox reaches of the network and of the sockets of its host: nothing.

const listening = async (t: TestContext, where: Parameters<Server['listen']>[0]): Promise<{ server: Server; asked: () => number }> => {
  let asked = 0
  const server = createServer((socket) => {
    asked += 1
    socket.on('error', () => undefined).end('reached\n')
  })
  server.listen(where)
  await once(server, 'listening')
  t.after(() => server.close())
  return { server, asked: () => asked }
}

/** Prints what it reads there, or why it cannot. */
const CONNECT = `
use Socket;
my ($family, $address) = $ARGV[0] eq 'tcp' ? (AF_INET, pack_sockaddr_in($ARGV[1], inet_aton('127.0.0.1')))
  : (AF_UNIX, pack_sockaddr_un($ARGV[0] eq 'abstract' ? "\\0$ARGV[1]" : $ARGV[1]));
socket(my $s, $family, SOCK_STREAM, 0) or die "socket: $!\\n";
connect($s, $address) or do { print "connect: $!\\n"; exit 0 };
print scalar <$s>;
`
/** Prints what it hears at a path. */
const RECEIVE = `
use Socket; $| = 1;
socket(my $s, AF_UNIX, SOCK_DGRAM, 0) or die; bind($s, pack_sockaddr_un($ARGV[0])) or die;
print "listening"; while (defined recv($s, my $text, 9, 0)) { print $text }
`

/** Makes pairs of sockets, and sends to a path from each of datagrams. */
const PAIRS = `
use Socket;
for ([stream => SOCK_STREAM], [datagram => SOCK_DGRAM], [raw => SOCK_RAW]) {
  my ($name, $type) = @$_;
  socketpair(my $a, my $b, AF_UNIX, $type, 0) or do { print "$name refused\\n"; next };
  print "$name ", $type == SOCK_STREAM ? 'made' : send($a, 'x', 0, pack_sockaddr_un($ARGV[0])) ? 'sent' : "$!", "\\n";
}
`

const connect = (...words: readonly string[]): string[] => ['perl', '-e', CONNECT, ...words]

const portOf = ({ server }: { server: Server }): string => String((server.address() as { port: number }).port)

export const NETWORK_ROWS: readonly Row[] = [
  row('a listener on localhost of the host is not there in a sandbox, and is where the network is granted', async (t, house) => {
    const listener = await listening(t, { host: '127.0.0.1', port: 0 })
    const inside = await runSandboxed(t, house, connect('tcp', portOf(listener)))
    assert.match(inside.stdout, /^connect: Connection refused/)
    assert.equal(listener.asked(), 0)
    const granted = await runSandboxed(t, house, connect('tcp', portOf(listener)), { settings: { network: true } })
    assert.equal(granted.stdout, 'reached\n')
  }),

  row('there is no interface but a loopback of its own, and no way out', async (t, house) => {
    const inside = await runSandboxed(t, house, ['sh', '-c', 'tail -n +3 /proc/net/dev | cut -d: -f1; cat /proc/net/route; ls /sys 2>&1'])
    const [name, ...rest] = inside.stdout.trim().split('\n')
    assert.equal(name?.trim(), 'lo')
    assert.equal(rest.filter((line) => /^\w+\t[0-9A-F]{8}/.test(line)).length, 0, inside.stdout)
    assert.match(inside.stdout, /cannot access '\/sys'/)
    const far = await runSandboxed(t, house, [
      'perl',
      '-e',
      'use Socket; socket(my $s, AF_INET, SOCK_DGRAM, 0) or die; print send($s, "x", 0, pack_sockaddr_in(53, inet_aton("192.0.2.1"))) ? "sent" : "$!"',
    ])
    assert.match(far.stdout, /unreachable/)
  }),

  row('an abstract socket of the host, as buses and displays have, is not there', async (t, house) => {
    const name = `x0x-escape-${process.pid}`
    const listener = await listening(t, { path: `\0${name}` })
    assert.match(
      (await runSandboxed(t, house, connect('abstract', name), { settings: { unix_sockets: true } })).stdout,
      /^connect: Connection refused/,
    )
    assert.equal(listener.asked(), 0)
    const granted = await runSandboxed(t, house, connect('abstract', name), { settings: { network: true } })
    assert.equal(granted.stdout, 'reached\n', 'the trial itself does not find the socket')
  }),

  row('no socket file can be connected to without the network, not even one in its own directory', async (t, house) => {
    const path = join(house.project, 'in.sock')
    const listener = await listening(t, { path })
    for (const name of [path, 'in.sock'])
      assert.match((await runSandboxed(t, house, connect('unix', name))).stderr, /^socket: Address family not supported/m)
    assert.equal(listener.asked(), 0)
    for (const settings of [{ unix_sockets: true }, { network: true }])
      assert.equal((await runSandboxed(t, house, connect('unix', path), { settings })).stdout, 'reached\n')
  }),

  row('a pair of sockets stays possible, and none of datagrams, which could send to a path', async (t, house) => {
    const path = join(house.project, 'datagrams')
    const receiver = spawn('perl', ['-e', RECEIVE, path])
    t.after(() => receiver.kill())
    await once(receiver.stdout, 'data')
    const inside = await runSandboxed(t, house, ['perl', '-e', PAIRS, path])
    assert.equal(inside.stdout, 'stream made\ndatagram refused\nraw refused\n')
    // Without the filter the trial does send.
    const heard = once(receiver.stdout, 'data')
    const opened = await runSandboxed(t, house, ['perl', '-e', PAIRS, path], { settings: { unix_sockets: true } })
    assert.match(opened.stdout, /^stream made\ndatagram sent\n/)
    assert.match(String((await heard)[0]), /^x+$/)
  }),

  row(
    'the calls of another ABI make no such socket',
    async (t, house) => {
      // socket(2) of x32, whose numbers have this bit.
      const call = '$! = 0; print syscall(0x40000000 + 41, 1, 1, 0), " ", $! + 0'
      assert.equal((await runSandboxed(t, house, ['perl', '-e', call])).stdout, '-1 38')
    },
    { skip: process.arch !== 'x64' && 'x32 is of x86-64' },
  ),

  row('sockets in the data directory and in places of the system are not there, even with the network', async (t, house) => {
    const path = join(house.home, '.x0x', 'exec-approvals.sock')
    const listener = await listening(t, { path })
    for (const settings of [{ unix_sockets: true }, { network: true }])
      assert.match((await runSandboxed(t, house, connect('unix', path), { settings })).stdout, /^connect: No such file/)
    assert.equal(listener.asked(), 0)
    const system = await runSandboxed(t, house, ['sh', '-c', 'ls -A /run /var; ls /var/run /run/dbus /run/docker.sock'], {
      settings: { network: true },
    })
    assert.equal(system.stdout, '/run:\n\n/var:\ntmp\n')
  }),

  row('no kind of socket that a network namespace does not divide can be made', async (t, house) => {
    // AF_VSOCK reaches the host of a virtual machine, AF_ALG and AF_BLUETOOTH the kernel's own.
    const inside = await runSandboxed(t, house, [
      'perl',
      '-e',
      'for (40, 38, 31, 17) { print socket(my $s, $_, 1, 0) ? "made" : "$!", "\\n" }',
    ])
    assert.deepEqual(inside.stdout.trim().split('\n'), Array(4).fill('Address family not supported by protocol'))
  }),

  row('a datagram that is sent to the host does not arrive', async (t, house) => {
    const socket = createSocket('udp4')
    t.after(() => socket.close())
    let heard = 0
    socket.on('message', () => void (heard += 1))
    socket.bind(0, '127.0.0.1')
    await once(socket, 'listening')
    const send = [
      'perl',
      '-e',
      `use Socket; socket(my $s, AF_INET, SOCK_DGRAM, 0) or die; send($s, "x", 0, pack_sockaddr_in(${socket.address().port}, inet_aton("127.0.0.1"))); print "sent"`,
    ]
    assert.equal((await runSandboxed(t, house, send)).stdout, 'sent')
    const arrived = once(socket, 'message')
    assert.equal((await runSandboxed(t, house, send, { settings: { network: true } })).stdout, 'sent')
    await arrived
    assert.equal(heard, 1, 'only the one of the run that has the network')
  }),
]
