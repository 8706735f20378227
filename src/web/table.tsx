import type { ComponentChildren } from 'preact'
import { numberText } from './format.ts'
import { nextOrder } from './router.ts'

export interface Column<T> {
  readonly name: string
  readonly show: (row: T) => ComponentChildren
  /** `wide` takes the rest of the width, `number` is aligned to the right, `fit` is narrow. */
  readonly kind?: 'wide' | 'number' | 'fit'
  /** Order that its heading selects. */
  readonly order?: string
}

export interface TableProps<T> {
  readonly label: string
  readonly columns: readonly Column<T>[]
  readonly rows: readonly T[]
  readonly keyOf: (row: T) => string
  readonly order?: string
  readonly onOrder?: (order: string) => void
}

/** The `aria-sort` of a column. */
const sortOf = (column: string, order: string) => (order === column ? 'ascending' : order === `-${column}` ? 'descending' : 'none')

const Heading = <T,>({ column, order = '', onOrder }: { readonly column: Column<T> } & Pick<TableProps<T>, 'order' | 'onOrder'>) => (
  <th
    scope="col"
    role="columnheader"
    class={column.kind}
    aria-sort={column.order === undefined || onOrder === undefined ? undefined : sortOf(column.order, order)}
  >
    {column.order === undefined || onOrder === undefined ? (
      column.name
    ) : (
      <button type="button" class="order" onClick={() => onOrder(nextOrder(order, column.order!))}>
        {column.name}
      </button>
    )}
  </th>
)

/** Text for a missing value. A phone leaves it out. */
export const NONE = '–'

const Cell = <T,>({ column: { name, kind, show }, row }: { readonly column: Column<T>; readonly row: T }) => {
  const content = show(row)
  return (
    <td role="cell" class={`${kind ?? ''}${content === NONE ? ' none' : ''}`} data-name={name}>
      <div>{content}</div>
    </td>
  )
}

/** A table that becomes a list of cards on a phone. Its roles are stated, because browsers drop those of boxes with another layout. */
export const Table = <T,>({ label, columns, rows, keyOf, ...order }: TableProps<T>) => (
  <table role="table" aria-label={label} class={order.onOrder === undefined ? '' : 'sortable'}>
    <thead role="rowgroup">
      <tr role="row">
        {columns.map((column) => (
          <Heading key={column.name} column={column} {...order} />
        ))}
      </tr>
    </thead>
    <tbody role="rowgroup">
      {rows.map((row) => (
        <tr key={keyOf(row)} role="row">
          {columns.map((column) => (
            <Cell key={column.name} column={column} row={row} />
          ))}
        </tr>
      ))}
    </tbody>
  </table>
)

interface PagerProps {
  readonly from: number
  readonly total: number
  readonly count: number
  readonly step: number
  readonly of: string
  readonly go: (from: number) => void
}

/** The position in a long list, with buttons for the pages before and after. */
export const Pager = ({ from, total, count, step, of, go }: PagerProps) => (
  <p class="pager">
    <span>{total === 0 ? `No ${of}` : `${numberText(from + 1)} to ${numberText(from + count)} of ${numberText(total)} ${of}`}</span>
    {(from > 0 || from + count < total) && (
      <span class="pages">
        <button type="button" disabled={from === 0} onClick={() => go(Math.max(0, from - step))}>
          Previous
        </button>
        <button type="button" disabled={from + count >= total} onClick={() => go(from + step)}>
          Next
        </button>
      </span>
    )}
  </p>
)
