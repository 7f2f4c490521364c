// Package expression computes resources of sidecars from those of a pod's containers (SS-138 to SS-142).
//
// An expression has numbers (42, .5, 1e3), percentages (50%), quantities (100m, 1.5Gi), the variable cpu or
// memory, parentheses, a unary minus, + - * /, and max and min of two values. The case of names does not
// matter.
//
// Every value is a number or a quantity, and the parser knows which of them: the variable is a quantity, two
// quantities cannot be multiplied and nothing can be divided by one. So a number never depends on the
// variable, and a division by zero, like all other mistakes, is found when the expression is parsed. Only the
// sign and the size of the result are left to Evaluate.
//
// Values are rational numbers, cores or bytes; only the result is cut, to thousandths of a core or whole
// bytes.
package expression
