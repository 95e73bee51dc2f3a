// SPDX-License-Identifier: Apache-2.0

package exit

import (
	"errors"
	"fmt"
	"testing"
)

func TestCodeOf(t *testing.T) {
	t.Parallel()
	timedOut, refused := Error{TimedOut, errors.New("timed out")}, Error{Refused, errors.New("refused")}
	for name, test := range map[string]struct {
		err  error
		want Code
	}{
		"no error has the code of success":                                  {nil, Done},
		"an error without a code has the code of a failure":                 {errors.New("any"), Failed},
		"a wrapped error keeps its code":                                    {fmt.Errorf("around: %w", timedOut), TimedOut},
		"an error of the command line has the code of wrong usage":          {WrongUsage("expected %d", 1), Usage},
		"joined errors that include a failure have the code of the failure": {errors.Join(timedOut, errors.New("any"), refused), Failed},
		"a joined refusal and timeout have the code of the refusal":         {errors.Join(timedOut, refused), Refused},
		"an error with the code of another program keeps this code":         {Error{Code: 42}, 42},
		"nil among joined errors is ignored":                                {errors.Join(nil, timedOut), TimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := CodeOf(test.err); got != test.want {
				t.Errorf("found %d, want %d", got, test.want)
			}
		})
	}
}
