// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// namedObject is an object that the user named. Its kind and its name have not been validated.
type namedObject struct{ kindName, name string }

func (o namedObject) String() string { return o.kindName + "/" + o.name }

// arguments are the parsed arguments of a command, in one of the forms that kubectl accepts: KIND/NAME...,
// KIND[,KIND...] NAME... or KIND[,KIND...] alone.
type arguments struct {
	// kindNames are kinds without names of objects.
	kindNames []string
	objects   []namedObject
}

func parseArguments(args []string) (arguments, error) {
	if len(args) == 0 {
		return arguments{}, nil
	}
	if strings.Contains(args[0], "/") {
		return parseObjects(args)
	}
	kindNames := strings.Split(args[0], ",")
	if slices.Contains(kindNames, "") {
		return arguments{}, unknownKindError(kinds.ListBuiltIn(), args[0])
	}
	if len(args) == 1 {
		return arguments{kindNames: kindNames}, nil
	}
	var parsed arguments
	for _, kindName := range kindNames {
		for _, name := range args[1:] {
			if !isTargetName(name) {
				return arguments{}, mixedFormsError(args[0], name)
			}
			parsed.objects = append(parsed.objects, namedObject{kindName, name})
		}
	}
	return parsed, nil
}

// parseObjects parses KIND/NAME...
func parseObjects(args []string) (parsed arguments, err error) {
	for _, arg := range args {
		kindName, name, hasKind := strings.Cut(arg, "/")
		switch {
		case !hasKind:
			return arguments{}, mixedFormsError(args[0], arg)
		case kindName == "" || !isTargetName(name):
			return arguments{}, unknownKindError(kinds.ListBuiltIn(), arg)
		}
		parsed.objects = append(parsed.objects, namedObject{kindName, name})
	}
	return parsed, nil
}

// parseNames parses the arguments of a command for one kind: NAME... or KIND/NAME...
func parseNames(kindName string, args []string) (parsed arguments, err error) {
	for _, arg := range args {
		if strings.Contains(arg, "/") {
			one, err := parseObjects([]string{arg})
			if err != nil {
				return arguments{}, err
			}
			parsed.objects = append(parsed.objects, one.objects...)
			continue
		}
		parsed.objects = append(parsed.objects, namedObject{kindName, arg})
	}
	return parsed, nil
}

// parseObject parses the arguments of a command for one object: KIND/NAME or KIND NAME.
func parseObject(args []string) (namedObject, error) {
	parsed, err := parseArguments(args)
	switch {
	case err != nil:
		return namedObject{}, err
	case len(parsed.objects) != 1:
		return namedObject{}, exit.WrongUsage("expected one object as KIND/NAME or KIND NAME, found %q", strings.Join(args, " "))
	}
	return parsed.objects[0], nil
}

func isTargetName(name string) bool { return name != "" && !strings.Contains(name, "/") }

func mixedFormsError(first, other string) error {
	return exit.WrongUsage("expected KIND/NAME for each object, or one KIND and then names, found %q and %q", first, other)
}

func unknownKindError(known []kinds.Kind, text string) error {
	return exit.WrongUsage("expected KIND/NAME with one of the kinds %s, found %q", listKindNames(known), text)
}
