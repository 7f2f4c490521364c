package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"sort"
	"strings"
)

// A mutant is one change of one operator.
type mutant struct {
	id       int
	kind     string
	position token.Position
	operator token.Token // the operator that replaces it
}

const (
	arithmetic = "ARITHMETIC"
	boundary   = "BOUNDARY"
	negation   = "NEGATION"
	step       = "STEP"
	sign       = "SIGN"
)

var (
	negated = map[token.Token]token.Token{
		token.EQL: token.NEQ,
		token.NEQ: token.EQL,
		token.LSS: token.GEQ,
		token.GEQ: token.LSS,
		token.GTR: token.LEQ,
		token.LEQ: token.GTR,
	}
	moved = map[token.Token]token.Token{
		token.LSS: token.LEQ,
		token.LEQ: token.LSS,
		token.GTR: token.GEQ,
		token.GEQ: token.GTR,
	}
	calculated = map[token.Token]token.Token{
		token.ADD: token.SUB,
		token.SUB: token.ADD,
		token.MUL: token.QUO,
		token.QUO: token.MUL,
		token.REM: token.MUL,
	}
	functions = map[token.Token]string{
		token.ADD: "Add",
		token.SUB: "Sub",
		token.MUL: "Mul",
		token.QUO: "Quo",
		token.REM: "Rem",
	}
)

// changed is one file with the mutants in it.
type changed struct {
	fset    *token.FileSet
	info    *types.Info
	pkg     *types.Package
	source  []byte
	mutants map[ast.Node][]mutant
	// the type with which a generic function is called, where it cannot be inferred
	names   map[ast.Node]string
	imports map[string]string // the names of what is imported, by path
}

func newChanged(
	fset *token.FileSet, info *types.Info, pkg *types.Package, file *ast.File, source []byte,
) *changed {
	f := &changed{
		fset:    fset,
		info:    info,
		pkg:     pkg,
		source:  source,
		mutants: map[ast.Node][]mutant{},
		names:   map[ast.Node]string{},
		imports: map[string]string{},
	}
	for _, spec := range file.Imports {
		object := info.Implicits[spec]
		if spec.Name != nil {
			object = info.Defs[spec.Name]
		}
		if name, is := object.(*types.PkgName); is {
			f.imports[name.Imported().Path()] = name.Name()
		}
	}
	return f
}

// find looks for mutants below a node. Constant expressions are skipped, because they must stay constant.
func (f *changed) find(root ast.Node, next *int) []mutant {
	var found []mutant
	add := func(node ast.Node, at token.Pos, kind string, operator token.Token) {
		position := f.fset.Position(at)
		m := mutant{id: *next, kind: kind, position: position, operator: operator}
		*next++
		f.mutants[node] = append(f.mutants[node], m)
		found = append(found, m)
	}
	ast.Inspect(root, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case *ast.ArrayType:
			return false
		case *ast.BinaryExpr:
			f.binary(n, add)
		case *ast.UnaryExpr:
			if n.Op == token.SUB && f.number(n, f.info.TypeOf(n)) {
				add(n, n.OpPos, sign, token.ADD)
			}
		case *ast.IncDecStmt:
			if !f.number(n, f.info.TypeOf(n.X)) || f.names[n] == "" {
				return true
			}
			if n.Tok == token.INC {
				add(n, n.TokPos, step, token.DEC)
			} else {
				add(n, n.TokPos, step, token.INC)
			}
		}
		return true
	})
	return found
}

func (f *changed) binary(n *ast.BinaryExpr, add func(ast.Node, token.Pos, string, token.Token)) {
	if other, is := calculated[n.Op]; is && f.number(n, f.info.TypeOf(n)) {
		add(n, n.OpPos, arithmetic, other)
	}
	if f.info.Types[n].Value != nil {
		return // a comparison of constants
	}
	if other, is := moved[n.Op]; is {
		add(n, n.OpPos, boundary, other)
	}
	if other, is := negated[n.Op]; is {
		add(n, n.OpPos, negation, other)
	}
}

// number tells whether a type is numeric, and remembers its name if that can be written in this package.
func (f *changed) number(node ast.Node, t types.Type) bool {
	basic, is := t.Underlying().(*types.Basic)
	if !is || basic.Info()&types.IsNumeric == 0 || basic.Info()&(types.IsComplex|types.IsUntyped) != 0 {
		return false
	}
	switch t := types.Unalias(t).(type) {
	case *types.Basic:
		f.names[node] = t.Name()
	case *types.Named:
		if t.Obj().Pkg() == f.pkg {
			f.names[node] = t.Obj().Name()
		} else if name := f.imports[t.Obj().Pkg().Path()]; name != "" {
			f.names[node] = name + "." + t.Obj().Name()
		} else if expression, is := node.(ast.Expr); is && f.info.Types[expression].Value != nil {
			return false // constants alone do not have the type that the context gives them
		}
	default: // a type parameter
		return false
	}
	return true
}

// text returns the source of a node with the switches of the mutants inside it.
func (f *changed) text(root ast.Node) string {
	type span struct {
		from, to int
		text     string
	}
	var spans []span
	ast.Inspect(root, func(node ast.Node) bool {
		if node == root || node == nil || f.mutants[node] == nil {
			return true
		}
		spans = append(spans, span{f.fset.Position(node.Pos()).Offset, f.fset.Position(node.End()).Offset,
			f.switched(node)})
		return false
	})
	sort.Slice(spans, func(i, j int) bool { return spans[i].from < spans[j].from })
	from, to := f.fset.Position(root.Pos()).Offset, f.fset.Position(root.End()).Offset
	if _, whole := root.(*ast.File); whole {
		from, to = 0, len(f.source)
	}
	var out strings.Builder
	for _, s := range spans {
		out.Write(f.source[from:s.from])
		out.WriteString(s.text)
		from = s.to
	}
	out.Write(f.source[from:to])
	return out.String()
}

// switched returns the source of a node that behaves differently when one of its mutants is chosen.
func (f *changed) switched(node ast.Node) string {
	mutants, name := f.mutants[node], ""
	if mutants == nil {
		return f.text(node)
	}
	if f.names[node] != "" {
		name = "[" + f.names[node] + "]"
	}
	switch n := node.(type) {
	case *ast.IncDecStmt:
		return fmt.Sprintf("%s %c= mutantStep%s(%d)", f.text(n.X), n.Tok.String()[0], name, mutants[0].id)
	case *ast.UnaryExpr:
		return fmt.Sprintf("mutantNeg%s(%d, %s)", name, mutants[0].id, f.switched(n.X))
	case *ast.BinaryExpr:
		x, y := f.switched(n.X), f.switched(n.Y)
		if mutants[0].kind == arithmetic {
			return fmt.Sprintf("mutant%s%s(%d, %s, %s)", functions[n.Op], name, mutants[0].id, x, y)
		}
		out := fmt.Sprintf("(%s %s %s)", x, n.Op, y)
		for _, m := range mutants {
			if m.kind == boundary {
				out = fmt.Sprintf("(mutating(%d) && %s %s %s || !mutating(%d) && %s)", m.id, x,
					m.operator, y, m.id, out)
			} else {
				out = fmt.Sprintf("(%s != mutating(%d))", out, m.id)
			}
		}
		return out
	}
	return f.text(node)
}

// choosing is added to the package. A mutant counts as reached when its switch is evaluated.
const choosing = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

type (
	mutantInteger interface { ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 }
	mutantNumber  interface { mutantInteger | ~float32 | ~float64 }
)

var (
	mutantChosen  = mutantFromEnvironment()
	mutantReached = os.Getenv("MUTANTS_REACHED")
	mutantSeen    [%d]atomic.Bool
)

func mutantFromEnvironment() int {
	id, err := strconv.Atoi(os.Getenv("MUTANT"))
	if err != nil {
		return -1
	}
	return id
}

func mutating(id int) bool {
	if mutantReached != "" && !mutantSeen[id].Swap(true) {
		file, err := os.OpenFile(mutantReached, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		if _, err := file.WriteString(strconv.Itoa(id) + "\n"); err != nil {
			panic(err)
		}
		if err := file.Close(); err != nil {
			panic(err)
		}
	}
	return mutantChosen == id
}

func mutantAdd[T mutantNumber](id int, a, b T) T { if mutating(id) { return a - b }; return a + b }
func mutantSub[T mutantNumber](id int, a, b T) T { if mutating(id) { return a + b }; return a - b }
func mutantMul[T mutantNumber](id int, a, b T) T { if mutating(id) { return a / b }; return a * b }
func mutantQuo[T mutantNumber](id int, a, b T) T { if mutating(id) { return a * b }; return a / b }
func mutantRem[T mutantInteger](id int, a, b T) T { if mutating(id) { return a * b }; return a %% b }
func mutantNeg[T mutantNumber](id int, a T) T { if mutating(id) { return a }; return -a }
func mutantStep[T mutantNumber](id int) T { var zero T; if mutating(id) { return zero - 1 }; return 1 }
`
