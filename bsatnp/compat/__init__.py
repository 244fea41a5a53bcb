"""Models of other packages, brought over to the models here."""

from bsatnp.compat.dl4bi import from_dl4bi as from_dl4bi
