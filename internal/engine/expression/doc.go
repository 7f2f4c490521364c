// Package expression computes resources of sidecars from those of a pod's containers (SS-138 to SS-142).
//
// An expression has numbers (42, .5, 1e3), percentages (50%), quantities (100m, 1.5Gi), the variable cpu or memory, parentheses, a unary
// minus, + - * /, and max and min of two values. Names are the same in small letters and capitals.
//
// Every value is a number or a quantity, and which of them is known without evaluating: the variable is a quantity, two quantities cannot
// be multiplied and nothing can be divided by one. So a number never depends on the variable, and a division by zero, like all other
// mistakes, is found when the expression is parsed. What is left to Evaluate is the sign of the result, and its size.
//
// Values are rational numbers, cores or bytes; only the result is cut, to thousandths of a core or whole bytes.
package expression
