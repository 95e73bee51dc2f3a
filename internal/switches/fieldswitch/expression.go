// SPDX-License-Identifier: Apache-2.0

package fieldswitch

import (
	"fmt"

	"github.com/google/cel-go/cel"
)

const (
	// maxCost limits the cost of evaluating an expression on one object, in CEL cost units. An evaluation of this
	// cost takes a few milliseconds.
	maxCost = 50_000
	// objectVariable is the name of the CEL variable that holds the whole object.
	objectVariable = "object"
)

// Expression is a CEL expression over an object whose result is true or false.
type Expression struct {
	text    string
	program cel.Program
}

// CompileExpression compiles an expression. An empty expression is always true.
func CompileExpression(text string) (Expression, error) {
	if text == "" {
		return Expression{}, nil
	}
	environment, err := cel.NewEnv(cel.Variable(objectVariable, cel.DynType), cel.OptionalTypes())
	if err != nil {
		return Expression{}, fmt.Errorf("set up CEL: %w", err)
	}
	checked, issues := environment.Compile(text)
	if issues.Err() != nil {
		return Expression{}, fmt.Errorf("expected a CEL expression over the variable object, found an invalid one: %w", issues.Err())
	}
	if kind := checked.OutputType(); kind != cel.BoolType && kind != cel.DynType {
		return Expression{}, fmt.Errorf("expected true or false, found an expression of type %s", kind)
	}
	program, err := environment.Program(checked, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(100))
	if err != nil {
		return Expression{}, fmt.Errorf("compile CEL: %w", err)
	}
	return Expression{text, program}, nil
}

// EvaluateOn evaluates the expression for an object. It returns an error if the evaluation fails or exceeds maxCost.
func (e Expression) EvaluateOn(object map[string]any) (bool, error) {
	if e.program == nil {
		return true, nil
	}
	answer, _, err := e.program.Eval(map[string]any{objectVariable: object})
	if err != nil {
		return false, fmt.Errorf("%.60q: %w", e.text, err)
	}
	is, isBool := answer.Value().(bool)
	if !isBool {
		return false, fmt.Errorf("%.60q: expected true or false, found %v", e.text, answer.Type())
	}
	return is, nil
}
