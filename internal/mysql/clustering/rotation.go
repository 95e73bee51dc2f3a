// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"time"

	"github.com/torpor-dev/torpor/internal/decision"
)

// A rotation gives every account a second password, lets everybody use it, and ends the first one when somebody asks for it.
// Every step may be repeated, and what was done is seen in the Secret and in the servers. It waits for a healthy cluster.

// fileDelay is how long the kubelet may take to bring a Secret's files to a Pod.
const fileDelay = 3 * time.Minute

func mayRotate(d *derivedFacts) bool {
	return (d.Rotation.Asked || d.Rotation.DiscardAsked) && d.state == StateHealthy && !d.StopAsked && d.primary.MayActNow && d.primary.IsWritable
}

func needsNextPasswords(d *derivedFacts) bool {
	return mayRotate(d) && d.Rotation.Asked && d.Rotation.ID == ""
}

func isPromoting(d *derivedFacts) bool {
	return mayRotate(d) && d.Rotation.ID != "" && !d.Rotation.IsPromoted
}

func needsSecondPasswords(d *derivedFacts) bool {
	return isPromoting(d) && d.primary.Rotation != d.Rotation.ID
}

func areReplicasBehindRotation(d *derivedFacts) bool {
	return isPromoting(d) && d.any(func(i *instanceFacts) bool { return i.Rotation != d.Rotation.ID })
}

// hasOldChannelPassword reports whether a replica could not come back once the old passwords end.
func hasOldChannelPassword(i *instanceFacts) bool {
	return mayRotate(i.cluster) && i.cluster.Rotation.ID != "" && i.MayActNow && i.FollowsPrimary && i.Channel.HasOldPassword
}

func mayPromotePasswords(d *derivedFacts) bool { return isPromoting(d) }

func isDiscarding(d *derivedFacts) bool {
	return mayRotate(d) && d.Rotation.DiscardAsked && d.Rotation.IsPromoted && d.any(func(i *instanceFacts) bool { return i.Rotation != "" })
}

func arePasswordsUnknown(d *derivedFacts) bool {
	return isDiscarding(d) && (d.Rotation.KnownSince.IsZero() || d.Now.Sub(d.Rotation.KnownSince) < fileDelay)
}

func mayDiscardPasswords(d *derivedFacts) bool {
	return isDiscarding(d) && d.primary.Rotation != ""
}

func isRotationDone(d *derivedFacts) bool { return mayRotate(d) && !isDiscarding(d) }

// promotePasswords tells of the rotation. Its end looks like a second one that is asked for before the old passwords are discarded, and
// that one changes nothing.
func promotePasswords(_ *derivedFacts, primary *instanceFacts) Plan {
	return Plan{
		Do: PromotePasswords{}, Why: fmt.Sprintf("instance %d is the primary; its new passwords are written down", primary.Index),
		Events: []decision.Event{normalEvent(EventPasswordsRotated, "The accounts have new passwords; the old ones are valid too until they are discarded")},
	}
}

func endRotation(d *derivedFacts, _ *instanceFacts) Plan {
	if d.Rotation.DiscardAsked {
		return Plan{
			Do: EndRotation{Discarded: true}, Why: "every account has one password",
			Events: []decision.Event{normalEvent(EventPasswordsDiscarded, "Only the newest passwords of the accounts are valid")},
		}
	}
	return Plan{Do: EndRotation{}, Why: "every account has a new password beside the old one, which has to end before there can be another"}
}
