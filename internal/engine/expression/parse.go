package expression

import (
	"fmt"
	"math/big"
	"strings"
)

// Variable is the variable of an expression. Its unit is cores or bytes.
type Variable string

// These are the variables, in cores and bytes (SS-138, SS-139).
const (
	CPU    Variable = "cpu"
	Memory Variable = "memory"
)

// Expression is a parsed expression. It is immutable.
type Expression struct {
	root     *node
	variable Variable
}

// Parse parses an expression and checks its types; the variable is a quantity. It does not check the sign of
// the result, which depends on the variable (SS-140).
func Parse(text string, variable Variable) (*Expression, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}

	p := &parser{tokens: tokens, variable: variable}
	root, err := p.sum()
	if err != nil {
		return nil, err
	}
	if rest := p.next(); rest.kind != tokenEnd {
		return nil, fmt.Errorf("unexpected %s", rest)
	}
	return &Expression{root: root, variable: variable}, nil
}

// node is a value: a constant, the variable, or an operation on two others. A number is always a constant.
type node struct {
	quantity    bool
	constant    *big.Rat
	operation   operation
	left, right *node
}

// operation computes out from two values. A nil operation stands for the variable.
type operation func(out, left, right *big.Rat)

func (n *node) evaluate(variable *big.Rat) *big.Rat {
	switch {
	case n.constant != nil:
		return n.constant
	case n.operation == nil:
		return variable
	}
	out := new(big.Rat)
	n.operation(out, n.left.evaluate(variable), n.right.evaluate(variable))
	return out
}

// combine returns the node of an operation. If the variable does not occur in the operation, it is computed
// at once.
func combine(quantity bool, operation operation, left, right *node) *node {
	n := &node{quantity: quantity, operation: operation, left: left, right: right}
	if left.constant != nil && right.constant != nil {
		return &node{quantity: quantity, constant: n.evaluate(nil)}
	}
	return n
}

func add(out, left, right *big.Rat)      { out.Add(left, right) }
func subtract(out, left, right *big.Rat) { out.Sub(left, right) }
func multiply(out, left, right *big.Rat) { out.Mul(left, right) }
func divide(out, left, right *big.Rat)   { out.Quo(left, right) }

func larger(out, left, right *big.Rat) {
	if out.Set(left); left.Cmp(right) < 0 {
		out.Set(right)
	}
}

func smaller(out, left, right *big.Rat) {
	if out.Set(left); left.Cmp(right) > 0 {
		out.Set(right)
	}
}

type parser struct {
	tokens   []token
	variable Variable
	depth    int
}

func (p *parser) peek(symbols string) bool {
	return p.tokens[0].kind == tokenSymbol && strings.Contains(symbols, p.tokens[0].text)
}

func (p *parser) next() token {
	first := p.tokens[0]
	if first.kind != tokenEnd {
		p.tokens = p.tokens[1:]
	}
	return first
}

func (p *parser) expect(symbol string) error {
	if !p.peek(symbol) {
		return fmt.Errorf("expected %q, found %s", symbol, p.tokens[0])
	}
	p.next()
	return nil
}

// sum parses terms separated by + and -.
func (p *parser) sum() (*node, error) {
	left, err := p.product()
	for err == nil && p.peek("+-") {
		operation := add
		if p.next().text == "-" {
			operation = subtract
		}
		var right *node
		if right, err = p.product(); err == nil {
			left = combine(left.quantity || right.quantity, operation, left, right)
		}
	}
	return left, err
}

// product parses factors separated by * and /.
func (p *parser) product() (*node, error) {
	left, err := p.factor()
	for err == nil && p.peek("*/") {
		sign := p.next()
		var right *node
		if right, err = p.factor(); err != nil {
			break
		}
		switch {
		case sign.text == "*" && left.quantity && right.quantity:
			err = fmt.Errorf("multiplication of two quantities at character %d", sign.at+1)
		case sign.text == "*":
			left = combine(left.quantity || right.quantity, multiply, left, right)
		case right.quantity:
			err = fmt.Errorf("division by quantity at character %d", sign.at+1)
		case right.constant.Sign() == 0:
			err = fmt.Errorf("division by zero at character %d", sign.at+1)
		default:
			left = combine(left.quantity, divide, left, right)
		}
	}

	return left, err
}

// factor parses one value.
func (p *parser) factor() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, fmt.Errorf("the expression is nested more than %d deep", maxDepth)
	}

	defer func() { p.depth-- }()

	first := p.next()
	switch {
	case first.kind == tokenNumber || first.kind == tokenQuantity:
		return &node{quantity: first.kind == tokenQuantity, constant: first.value}, nil
	case first.kind == tokenName && p.peek("("):
		return p.call(first)
	case first.kind == tokenName && strings.EqualFold(first.text, string(p.variable)):
		return &node{quantity: true}, nil
	case first.kind == tokenName:
		return nil, fmt.Errorf("undefined variable: %s", first.text)
	case first.kind == tokenSymbol && first.text == "-":
		value, err := p.factor()
		if err != nil {
			return nil, err
		}
		return combine(value.quantity, subtract, &node{constant: new(big.Rat)}, value), nil
	case first.kind == tokenSymbol && first.text == "(":
		value, err := p.sum()
		if err != nil {
			return nil, err
		}
		return value, p.expect(")")
	}

	return nil, fmt.Errorf("expected a value, found %s", first)
}

// call parses the two arguments of a function.
func (p *parser) call(name token) (*node, error) {
	var operation operation
	switch strings.ToLower(name.text) {
	case "max":
		operation = larger
	case "min":
		operation = smaller
	default:
		return nil, fmt.Errorf("unknown function: %s", name.text)
	}

	p.next()
	var arguments []*node
	for !p.peek(")") {
		if len(arguments) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		argument, err := p.sum()
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, argument)
	}

	p.next()
	if len(arguments) != 2 {
		return nil, fmt.Errorf("%s takes two arguments, found %d at character %d",
			name.text, len(arguments), name.at+1)
	}

	return combine(arguments[0].quantity || arguments[1].quantity, operation, arguments[0], arguments[1]), nil
}
