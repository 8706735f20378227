import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer, type Server } from 'node:net'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { runSandboxed } from '../../test/support/sandboxed.ts'
import { row, type Row } from './row.ts'

// Network addresses and sockets of the host that a sandboxed run can reach. There are none.

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

/** Connects to a socket and prints what it reads, or the error. */
const CONNECT = `
use Socket;
my ($family, $address) = $ARGV[0] eq 'tcp' ? (AF_INET, pack_sockaddr_in($ARGV[1], inet_aton('127.0.0.1')))
  : (AF_UNIX, pack_sockaddr_un($ARGV[0] eq 'abstract' ? "\\0$ARGV[1]" : $ARGV[1]));
socket(my $s, $family, SOCK_STREAM, 0) or die "socket: $!\\n";
connect($s, $address) or do { print "connect: $!\\n"; exit 0 };
print scalar <$s>;
`
/** Prints what arrives at a datagram socket. */
const RECEIVE = `
use Socket; $| = 1;
socket(my $s, AF_UNIX, SOCK_DGRAM, 0) or die; bind($s, pack_sockaddr_un($ARGV[0])) or die;
print "listening"; while (defined recv($s, my $text, 9, 0)) { print $text }
`

/** Creates pairs of sockets, and sends from each datagram socket to a path. */
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
  row('a run reaches a listener on localhost of the host only if the configuration grants the network', async (t, house) => {
    const listener = await listening(t, { host: '127.0.0.1', port: 0 })
    const inside = await runSandboxed(t, house, connect('tcp', portOf(listener)))
    assert.match(inside.stdout, /^connect: Connection refused/)
    assert.equal(listener.asked(), 0)
    const granted = await runSandboxed(t, house, connect('tcp', portOf(listener)), { settings: { network: true } })
    assert.equal(granted.stdout, 'reached\n')
  }),

  row('a run has only a loopback interface and no route to other networks', async (t, house) => {
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

  row('a run cannot connect to an abstract socket of the host without the network', async (t, house) => {
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

  row('without the network, a run cannot connect to any socket file, even in its own directory', async (t, house) => {
    const path = join(house.project, 'in.sock')
    const listener = await listening(t, { path })
    for (const name of [path, 'in.sock'])
      assert.match((await runSandboxed(t, house, connect('unix', name))).stderr, /^socket: Address family not supported/m)
    assert.equal(listener.asked(), 0)
    for (const settings of [{ unix_sockets: true }, { network: true }])
      assert.equal((await runSandboxed(t, house, connect('unix', path), { settings })).stdout, 'reached\n')
  }),

  row('a run can create pairs of stream sockets, but not of datagram sockets, which could send to a path', async (t, house) => {
    const path = join(house.project, 'datagrams')
    const receiver = spawn('perl', ['-e', RECEIVE, path])
    t.after(() => receiver.kill())
    await once(receiver.stdout, 'data')
    const inside = await runSandboxed(t, house, ['perl', '-e', PAIRS, path])
    assert.equal(inside.stdout, 'stream made\ndatagram refused\nraw refused\n')
    // Without the filter, the same program does send.
    const heard = once(receiver.stdout, 'data')
    const opened = await runSandboxed(t, house, ['perl', '-e', PAIRS, path], { settings: { unix_sockets: true } })
    assert.match(opened.stdout, /^stream made\ndatagram sent\n/)
    assert.match(String((await heard)[0]), /^x+$/)
  }),

  row(
    'system calls of the x32 ABI create no socket',
    async (t, house) => {
      // The socket(2) call of x32. This bit marks the numbers of x32.
      const call = '$! = 0; print syscall(0x40000000 + 41, 1, 1, 0), " ", $! + 0'
      assert.equal((await runSandboxed(t, house, ['perl', '-e', call])).stdout, '-1 38')
    },
    { skip: process.arch !== 'x64' && 'x32 is of x86-64' },
  ),

  row('sockets in the data directory and in system directories are missing, even with the network', async (t, house) => {
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

  row('a run cannot create sockets of families that ignore network namespaces', async (t, house) => {
    // AF_VSOCK reaches the host of a virtual machine. AF_ALG and AF_BLUETOOTH reach the kernel of the host.
    const inside = await runSandboxed(t, house, [
      'perl',
      '-e',
      'for (40, 38, 31, 17) { print socket(my $s, $_, 1, 0) ? "made" : "$!", "\\n" }',
    ])
    assert.deepEqual(inside.stdout.trim().split('\n'), Array(4).fill('Address family not supported by protocol'))
  }),

  row('a datagram to the host arrives only if the run has the network', async (t, house) => {
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
